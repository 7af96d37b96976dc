//! Element-wise functions of two operands, the second repeated to the shape of the first.

use crate::dtype::CType as _;
use crate::ops::prelude::*;
use crate::shape::CShape as _;

macro_rules! binary {
    ($($doc:literal, $ab:literal, $name:ident = $c:ident, $alias:literal, $inplace:ident = $c_inplace:ident, $alias_inplace:literal;)*) => {
        impl Context {
            $(
                #[doc = concat!($doc, " (`", $alias, "`).")]
                ///
                /// `b` is repeated to the shape of `a`; the result has the shape and type of `a`.
                ///
                /// ```
                /// # use ggml::prelude::*; let ctx = Context::new();
                /// let [a, b] = [ctx.input("a", DType::F32, [2, 2])?, ctx.input("b", DType::F32, [2])?];
                #[doc = concat!("let y = ctx.", stringify!($name), "(a, b)?;")]
                /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
                /// # let mut run = sched.alloc(&graph)?;
                /// run.set(a, &[1.0_f32, 2.0, 3.0, 4.0])?;
                /// run.set(b, &[1.0_f32, 2.0])?;
                /// run.compute()?;
                #[doc = concat!("assert_eq!(run.get::<f32>(y)?, ", $ab, ");")]
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::Shape`](crate::Error::Shape) unless every dimension of `b` divides that of `a`.
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
                    let call = Call { op: entered!(stringify!($name)), operands: &[a, b] };
                    call.repeats(b, a)?;
                    build!(self, sys::$c(a, b))
                }

                #[doc = concat!("[`Context::", stringify!($name), "`] in place (`", $alias_inplace, "`).")]
                ///
                /// It writes to `a`, which may be a [`State`](crate::State)'s tensor or a result, and returns a view of
                /// `a`. Operations that read `a` itself, or share its memory, are not ordered after it; read the view.
                ///
                /// # Errors
                ///
                #[doc = concat!("As [`Context::", stringify!($name), "`];")]
                /// [`Error::Frozen`](crate::Error::Frozen) where `a` lies in weights,
                /// [`Error::Shape`](crate::Error::Shape) where it lies in an input, holds indices, or overlaps `b`
                /// without being identical.
                #[doc(alias = $alias_inplace)]
                pub fn $inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
                    let call = Call { op: entered!(stringify!($inplace)), operands: &[a, b] };
                    call.repeats(b, a)?;
                    call.in_place(a, &[b])?;
                    build!(self, sys::$c_inplace(a, b))
                }
            )*
        }
    };
}

binary! {
    "`a + b`", "[2.0, 4.0, 4.0, 6.0]",
        add = ggml_add, "ggml_add",
        add_inplace = ggml_add_inplace, "ggml_add_inplace";
    "`a - b`", "[0.0, 0.0, 2.0, 2.0]",
        sub = ggml_sub, "ggml_sub",
        sub_inplace = ggml_sub_inplace, "ggml_sub_inplace";
    "`a * b`, element by element", "[1.0, 4.0, 3.0, 8.0]",
        mul = ggml_mul, "ggml_mul",
        mul_inplace = ggml_mul_inplace, "ggml_mul_inplace";
    "`a / b`, element by element", "[1.0, 1.0, 3.0, 2.0]",
        div = ggml_div, "ggml_div",
        div_inplace = ggml_div_inplace, "ggml_div_inplace";
}

impl Context {
    /// `a + b`, of type `dtype` (`ggml_add_cast`), for an `a` of `f16`, `bf16` or a quantised type. `b` is repeated
    /// over all dimensions of `a` except the first.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let a = ctx.cast(ctx.arange(0.0, 4.0, 1.0)?, DType::F16)?; // 0, 1, 2, 3
    /// let b = ctx.arange(10.0, 14.0, 1.0)?;
    /// let sum = ctx.add_cast(a, b, DType::F32)?;
    /// # let (graph, mut sched) = (ctx.graph([sum])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(sum)?, [10.0, 12.0, 14.0, 16.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for other types of `a`; [`Error::Shape`](crate::Error::Shape) unless `b`
    /// has the row length of `a`, its other dimensions divide those of `a`, and rows are whole blocks of `dtype`;
    /// [`Error::Param`](crate::Error::Param) for a type that the linked ggml doesn't have.
    #[doc(alias = "ggml_add_cast")]
    pub fn add_cast<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, dtype: DType) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("add_cast"), operands: &[a, b] };
        call.param(dtype.is_known(), "dtype", dtype, "this ggml has no such type")?;
        call.repeats(b, a)?;
        let ([a0, ..], [b0, ..]) = (a.ne(), b.ne());
        call.shape(a0 == b0, "the first dimensions must be equal")?;
        let known = a.dtype().is_quantized() || matches!(a.dtype(), DType::F16 | DType::BF16);
        call.dtype(known, "the first operand must be f16, bf16 or quantised")?;
        call.shape(a.shape().bytes(dtype).is_ok(), "rows must be whole blocks of the new type, and not too long")?;
        build!(self, sys::ggml_add_cast(a, b; dtype.raw()))
    }

    /// `a + b` for a scalar `b` (`ggml_add1`). ggml recommends [`Context::add`] instead.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `b` has one element, and the rows of `a` are contiguous and evenly
    /// spaced.
    #[doc(alias = "ggml_add1")]
    pub fn add1<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        one_number(Call { op: entered!("add1"), operands: &[a, b] }, a, b)?;
        build!(self, sys::ggml_add1(a, b))
    }

    /// [`Context::add1`] in place (`ggml_add1_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::add1`] and [`Context::add_inplace`].
    #[doc(alias = "ggml_add1_inplace")]
    pub fn add1_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("add1_inplace"), operands: &[a, b] };
        one_number(call, a, b)?;
        call.in_place(a, &[b])?;
        build!(self, sys::ggml_add1_inplace(a, b))
    }
}

/// Checks what `ggml_add1` asserts, which includes the strides of dimensions of 1.
fn one_number(call: Call<'_, '_>, a: Tensor<'_>, b: Tensor<'_>) -> Result<()> {
    call.shape(b.ne() == [1; 4], "the second operand must have one element")?;
    call.shape(a.layout().has_even_rows(), "rows must be contiguous and evenly spaced; use `cont`")
}
