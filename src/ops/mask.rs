//! Causal masks, triangles and diagonals of matrices.

use crate::op::TriType;
use crate::ops::prelude::*;

macro_rules! future {
    ($($name:ident = $c:ident, $alias:literal, $inplace:ident = $c_inplace:ident, $alias_inplace:literal, $value:literal, $y:literal;)*) => {
        impl Context {
            $(
                #[doc = concat!("`a` with ", $value, " in the future: in columns above the row plus ")]
                #[doc = concat!("`n_past` (`", $alias, "`).")]
                ///
                /// ```
                /// # use ggml::prelude::*; let ctx = Context::new();
                /// let scores = ctx.reshape(ctx.arange(1.0, 5.0, 1.0)?, [2, 2])?; // rows 1, 2 and 3, 4
                #[doc = concat!("let y = ctx.", stringify!($name), "(scores, 0)?;")]
                /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
                /// # let mut run = sched.alloc(&graph)?; run.compute()?;
                #[doc = concat!("assert_eq!(run.get::<f32>(y)?, [1.0, ", $y, ", 3.0, 4.0]);")]
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, [`Error::Shape`](crate::Error::Shape)
                /// unless it has the strides of a new tensor, [`Error::Param`](crate::Error::Param) where `n_past` is
                /// negative, or its sum with the number of rows is 2³¹ or more.
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>, n_past: i32) -> Result<Tensor<'c>> {
                    future_operand(Call { op: entered!(stringify!($name)), operands: &[a] }, a, n_past)?;
                    build!(self, sys::$c(a; n_past))
                }

                #[doc = concat!("[`Context::", stringify!($name), "`] in place (`", $alias_inplace, "`).")]
                ///
                /// # Errors
                ///
                #[doc = concat!("As [`Context::", stringify!($name), "`] and [`Context::norm_inplace`].")]
                #[doc(alias = $alias_inplace)]
                pub fn $inplace<'c>(&'c self, a: Tensor<'c>, n_past: i32) -> Result<Tensor<'c>> {
                    let call = Call { op: entered!(stringify!($inplace)), operands: &[a] };
                    future_operand(call, a, n_past)?;
                    call.in_place(a, &[])?;
                    build!(self, sys::$c_inplace(a; n_past))
                }
            )*
        }
    };
}

future! {
    diag_mask_inf = ggml_diag_mask_inf, "ggml_diag_mask_inf",
        diag_mask_inf_inplace = ggml_diag_mask_inf_inplace, "ggml_diag_mask_inf_inplace", "negative infinity", "f32::NEG_INFINITY";
    diag_mask_zero = ggml_diag_mask_zero, "ggml_diag_mask_zero",
        diag_mask_zero_inplace = ggml_diag_mask_zero_inplace, "ggml_diag_mask_zero_inplace", "zero", "0.0";
}

impl Context {
    /// Square matrices with the rows of `a` as diagonals and zeros elsewhere (`ggml_diag`): `[n, 1, …]` becomes `[n, n,
    /// …]`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.diag(ctx.arange(1.0, 3.0, 1.0)?)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [1.0, 0.0, 0.0, 2.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) unless its
    /// second dimension is 1, its rows are contiguous, and the result is not too large.
    #[doc(alias = "ggml_diag")]
    pub fn diag<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("diag"), operands: &[a] };
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        let [n, one, a2, a3] = a.ne();
        call.shape(one == 1, "the second dimension must be 1")?;
        call.shape(a.ptr().has_contiguous_rows(), "rows must be contiguous; use `cont`")?;
        call.result([n, n, a2, a3], a.dtype())?;
        build!(self, sys::ggml_diag(a))
    }

    /// One triangle of square matrices, with zeros elsewhere (`ggml_tri`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) unless it is
    /// contiguous and its first two dimensions are equal.
    #[doc(alias = "ggml_tri")]
    pub fn tri<'c>(&'c self, a: Tensor<'c>, kept: TriType) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("tri"), operands: &[a] };
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")?;
        let [n, m, ..] = a.ne();
        call.shape(n == m, "the matrices must be square")?;
        build!(self, sys::ggml_tri(a; kept.raw()))
    }
}

fn future_operand(call: Call<'_, '_>, a: Tensor<'_>, n_past: i32) -> Result<()> {
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    call.shape(a.layout().is_packed(), "the operand must have the strides of a new tensor; use `cont`")?;
    let [_, rows, ..] = a.ne();
    // The kernel adds the number of rows and `n_past` in 32 bits, so their sum must fit.
    let sum = rows.checked_add(n_past.into()).is_some_and(|n| i32::try_from(n).is_ok());
    call.param(n_past >= 0 && sum, "n_past", n_past, "it must not be negative, nor reach 2^31 with the rows added")
}
