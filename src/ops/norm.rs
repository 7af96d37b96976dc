//! Normalisation of rows.

use crate::ops::prelude::*;

macro_rules! norm {
    ($($name:ident = $c:ident, $alias:literal, $inplace:ident = $c_inplace:ident, $alias_inplace:literal,
        $check:ident, $layout:literal, $doc:literal, $y:literal;)*) => {
        impl Context {
            $(
                #[doc = concat!($doc, " (`", $alias, "`).")]
                ///
                /// ```
                /// # use ggml::prelude::*; let ctx = Context::new();
                /// let x = ctx.arange(3.0, 5.0, 1.0)?; // 3, 4
                #[doc = concat!("let y = ctx.", stringify!($name), "(x, 1e-6)?;")]
                /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
                /// # let mut run = sched.alloc(&graph)?; run.compute()?;
                #[doc = concat!("assert!(run.get::<f32>(y)?.iter().zip(", $y, ").all(|(y, x)| (y - x).abs() < 1e-3));")]
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                #[doc = concat!("[`Error::DType`](crate::Error::DType) unless `a` is `f32`; ", $layout)]
                /// [`Error::Param`](crate::Error::Param) unless `eps` is finite and not negative.
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>, eps: f32) -> Result<Tensor<'c>> {
                    $check(Call { op: entered!(stringify!($name)), operands: &[a] }, a, eps)?;
                    build!(self, sys::$c(a; eps))
                }

                #[doc = concat!("[`Context::", stringify!($name), "`] in place (`", $alias_inplace, "`).")]
                ///
                /// # Errors
                ///
                #[doc = concat!("As [`Context::", stringify!($name), "`]; [`Error::Frozen`](crate::Error::Frozen) where `a` lies in")]
                /// weights, [`Error::Shape`](crate::Error::Shape) where it lies in an input or holds indices.
                #[doc(alias = $alias_inplace)]
                pub fn $inplace<'c>(&'c self, a: Tensor<'c>, eps: f32) -> Result<Tensor<'c>> {
                    let call = Call { op: entered!(stringify!($inplace)), operands: &[a] };
                    $check(call, a, eps)?;
                    call.in_place(a, &[])?;
                    build!(self, sys::$c_inplace(a; eps))
                }
            )*
        }
    };
}

norm! {
    norm = ggml_norm, "ggml_norm", norm_inplace = ggml_norm_inplace, "ggml_norm_inplace",
        operand, "", "Each row minus its mean, divided by the square root of its variance plus `eps`", "[-1.0, 1.0]";
    rms_norm = ggml_rms_norm, "ggml_rms_norm", rms_norm_inplace = ggml_rms_norm_inplace, "ggml_rms_norm_inplace",
        rows, "[`Error::Shape`](crate::Error::Shape) unless its rows are contiguous;",
        "Each row divided by the square root of its mean square plus `eps`", "[0.849, 1.131]";
    l2_norm = ggml_l2_norm, "ggml_l2_norm", l2_norm_inplace = ggml_l2_norm_inplace, "ggml_l2_norm_inplace",
        operand, "", "Each row divided by its L2 norm, or by `eps` where that is larger", "[0.6, 0.8]";
}

impl Context {
    /// [`Context::norm`] over groups of channels, the third dimension (`ggml_group_norm`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.reshape(ctx.arange(0.0, 4.0, 1.0)?, [1, 1, 4])?; // 4 channels of one pixel
    /// let y = ctx.group_norm(x, 2, 0.0)?; // 0, 1 and 2, 3 alike
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::rms_norm`]; [`Error::Param`](crate::Error::Param) unless `groups` divides the third dimension:
    /// devices form different groups otherwise.
    #[doc(alias = "ggml_group_norm")]
    pub fn group_norm<'c>(&'c self, a: Tensor<'c>, groups: i32, eps: f32) -> Result<Tensor<'c>> {
        group_operand(Call { op: entered!("group_norm"), operands: &[a] }, a, groups, eps)?;
        build!(self, sys::ggml_group_norm(a; groups, eps))
    }

    /// [`Context::group_norm`] in place (`ggml_group_norm_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::group_norm`] and [`Context::norm_inplace`].
    #[doc(alias = "ggml_group_norm_inplace")]
    pub fn group_norm_inplace<'c>(&'c self, a: Tensor<'c>, groups: i32, eps: f32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("group_norm_inplace"), operands: &[a] };
        group_operand(call, a, groups, eps)?;
        call.in_place(a, &[])?;
        build!(self, sys::ggml_group_norm_inplace(a; groups, eps))
    }

    /// The gradient of [`Context::rms_norm`] with respect to its operand `x`, from that of its result, `grad`
    /// (`ggml_rms_norm_back`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless both have the same shape; for each as [`Context::rms_norm`].
    #[doc(alias = "ggml_rms_norm_back")]
    pub fn rms_norm_back<'c>(&'c self, grad: Tensor<'c>, x: Tensor<'c>, eps: f32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("rms_norm_back"), operands: &[grad, x] };
        rows(call, grad, eps)?;
        rows(call, x, eps)?;
        call.shape(grad.ne() == x.ne(), "both operands must have the same shape")?;
        build!(self, sys::ggml_rms_norm_back(grad, x; eps))
    }
}

fn group_operand(call: Call<'_, '_>, a: Tensor<'_>, groups: i32, eps: f32) -> Result<()> {
    rows(call, a, eps)?;
    let [_, _, channels, _] = a.ne();
    let divides = groups > 0 && channels % i64::from(groups) == 0 && i32::try_from(channels).is_ok();
    call.param(divides, "groups", groups, format_args!("it must divide the number of channels, {channels}"))
}

/// Checks the operand of a norm whose rows must be contiguous.
fn rows(call: Call<'_, '_>, a: Tensor<'_>, eps: f32) -> Result<()> {
    operand(call, a, eps)?;
    call.shape(a.ptr().has_contiguous_rows(), "rows must be contiguous; use `cont`")
}

/// Checks the operand of a norm, which may have any layout.
fn operand(call: Call<'_, '_>, a: Tensor<'_>, eps: f32) -> Result<()> {
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    call.param(eps.is_finite() && eps >= 0.0, "eps", eps, "it must be finite and not negative")
}
