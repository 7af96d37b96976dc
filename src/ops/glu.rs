//! Gated linear units: a function of the gate, times the values.

use crate::op::GluOp;
use crate::ops::prelude::*;

macro_rules! glu {
    ($(
        $gate:ident, $name:ident = $c:ident, $alias:literal,
        $swapped:ident = $c_swapped:ident, $alias_swapped:literal,
        $split:ident = $c_split:ident, $alias_split:literal;
    )*) => {
        impl Context {
            $(
                #[doc = concat!("[`Context::", stringify!($gate), "`] of the first half of each row, times the second")]
                #[doc = concat!("(`", $alias, "`).")]
                ///
                /// ```
                /// # use ggml::prelude::*; let ctx = Context::new();
                /// let x = ctx.arange(1.0, 5.0, 1.0)?; // halves 1, 2 and 3, 4
                #[doc = concat!("let y = ctx.", stringify!($name), "(x)?;")]
                #[doc = concat!("let same = ctx.mul(ctx.", stringify!($gate), "(ctx.view_1d(x, 2, 0)?)?, ctx.view_1d(x, 2, 8)?)?;")]
                /// # let graph = ctx.graph([y, same])?;
                /// # let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
                /// # let mut run = sched.alloc(&graph)?; run.compute()?;
                /// assert!(run.get::<f32>(y)?.iter().zip(run.get::<f32>(same)?).all(|(a, b)| (a - b).abs() < 0.01));
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// As [`Context::glu`].
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
                    halves(Call { op: entered!(stringify!($name)), operands: &[a] }, a)?;
                    build!(self, sys::$c(a))
                }

                #[doc = concat!("[`Context::", stringify!($gate), "`] of the second half of each row, times the first")]
                #[doc = concat!("(`", $alias_swapped, "`).")]
                ///
                /// # Errors
                ///
                /// As [`Context::glu`].
                #[doc(alias = $alias_swapped)]
                pub fn $swapped<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
                    halves(Call { op: entered!(stringify!($swapped)), operands: &[a] }, a)?;
                    build!(self, sys::$c_swapped(a))
                }

                #[doc = concat!("[`Context::", stringify!($gate), "`] of `a`, times `b` (`", $alias_split, "`).")]
                ///
                /// ```
                /// # use ggml::prelude::*; let ctx = Context::new();
                /// let (a, b) = (ctx.arange(-1.0, 2.0, 1.0)?, ctx.arange(5.0, 8.0, 1.0)?);
                #[doc = concat!("let y = ctx.", stringify!($split), "(a, b)?;")]
                #[doc = concat!("let same = ctx.mul(ctx.", stringify!($gate), "(a)?, b)?;")]
                /// # let graph = ctx.graph([y, same])?;
                /// # let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
                /// # let mut run = sched.alloc(&graph)?; run.compute()?;
                /// assert!(run.get::<f32>(y)?.iter().zip(run.get::<f32>(same)?).all(|(a, b)| (a - b).abs() < 0.01));
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// As [`Context::glu_split`].
                #[doc(alias = $alias_split)]
                pub fn $split<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
                    alike(Call { op: entered!(stringify!($split)), operands: &[a, b] }, a, b)?;
                    build!(self, sys::$c_split(a, b))
                }
            )*
        }
    };
}

glu! {
    relu, reglu = ggml_reglu, "ggml_reglu",
        reglu_swapped = ggml_reglu_swapped, "ggml_reglu_swapped",
        reglu_split = ggml_reglu_split, "ggml_reglu_split";
    gelu, geglu = ggml_geglu, "ggml_geglu",
        geglu_swapped = ggml_geglu_swapped, "ggml_geglu_swapped",
        geglu_split = ggml_geglu_split, "ggml_geglu_split";
    silu, swiglu = ggml_swiglu, "ggml_swiglu",
        swiglu_swapped = ggml_swiglu_swapped, "ggml_swiglu_swapped",
        swiglu_split = ggml_swiglu_split, "ggml_swiglu_split";
    gelu_erf, geglu_erf = ggml_geglu_erf, "ggml_geglu_erf",
        geglu_erf_swapped = ggml_geglu_erf_swapped, "ggml_geglu_erf_swapped",
        geglu_erf_split = ggml_geglu_erf_split, "ggml_geglu_erf_split";
    gelu_quick, geglu_quick = ggml_geglu_quick, "ggml_geglu_quick",
        geglu_quick_swapped = ggml_geglu_quick_swapped, "ggml_geglu_quick_swapped",
        geglu_quick_split = ggml_geglu_quick_split, "ggml_geglu_quick_split";
}

impl Context {
    /// Splits each row into two halves, and multiplies the function of the first by the second; with `swapped`, the
    /// function of the second by the first (`ggml_glu`). `[2 n, …]` becomes `[n, …]`. The last element of an odd row is
    /// not used.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, `f16` or `bf16`;
    /// [`Error::Shape`](crate::Error::Shape) unless its rows are contiguous, evenly spaced, and of two elements at least.
    #[doc(alias = "ggml_glu")]
    pub fn glu<'c>(&'c self, a: Tensor<'c>, op: GluOp, swapped: bool) -> Result<Tensor<'c>> {
        halves(Call { op: entered!("glu"), operands: &[a] }, a)?;
        build!(self, sys::ggml_glu(a; op.raw(), swapped))
    }

    /// A gated linear unit of two operands: the function of the gate `a`, times the values `b` (`ggml_glu_split`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::GluOp;
    /// # let ctx = Context::new();
    /// let (gate, up) = (ctx.arange(-1.0, 2.0, 1.0)?, ctx.arange(5.0, 8.0, 1.0)?);
    /// let y = ctx.glu_split(gate, up, GluOp::Reglu)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, 7.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::glu`], for both operands, except that rows may be of one element;
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless their shapes and types
    /// are equal.
    #[doc(alias = "ggml_glu_split")]
    pub fn glu_split<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, op: GluOp) -> Result<Tensor<'c>> {
        alike(Call { op: entered!("glu_split"), operands: &[a, b] }, a, b)?;
        build!(self, sys::ggml_glu_split(a, b; op.raw()))
    }

    /// `x * sigmoid(alpha * x) * (y + 1)`, where `x` is `a`, but at most `limit`, and `y` is `b`, but at least `-limit`
    /// and at most `limit` (`ggml_swiglu_oai`).
    ///
    /// # Errors
    ///
    /// As [`Context::glu_split`]; [`Error::Param`](crate::Error::Param) where `limit` is negative or NaN.
    #[doc(alias = "ggml_swiglu_oai")]
    pub fn swiglu_oai<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, alpha: f32, limit: f32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("swiglu_oai"), operands: &[a, b] };
        alike(call, a, b)?;
        positive(call, limit)?;
        build!(self, sys::ggml_swiglu_oai(a, b; alpha, limit))
    }

    /// `silu(x) * y`, where `x` is `a`, but at most `limit`, and `y` is `b`, but at least `-limit` and at most `limit`
    /// (`ggml_swiglu_clamp`).
    ///
    /// # Errors
    ///
    /// As [`Context::swiglu_oai`].
    #[doc(alias = "ggml_swiglu_clamp")]
    pub fn swiglu_clamp<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, limit: f32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("swiglu_clamp"), operands: &[a, b] };
        alike(call, a, b)?;
        positive(call, limit)?;
        build!(self, sys::ggml_swiglu_clamp(a, b; limit))
    }
}

fn operand(call: Call<'_, '_>, a: Tensor<'_>) -> Result<()> {
    call.dtype(a.dtype().is_float(), "the operand must be f32, f16 or bf16")?;
    call.shape(a.ptr().is_contiguous_1(), "rows must be contiguous and evenly spaced; use `cont`")
}

/// Checks an operand whose rows are split into gate and values.
fn halves(call: Call<'_, '_>, a: Tensor<'_>) -> Result<()> {
    operand(call, a)?;
    let [n, ..] = a.ne();
    call.shape(n >= 2, "rows must have two elements at least")
}

/// Checks gate and values, which are two operands.
fn alike(call: Call<'_, '_>, a: Tensor<'_>, b: Tensor<'_>) -> Result<()> {
    operand(call, a)?;
    operand(call, b)?;
    call.shape(a.shape() == b.shape(), "both operands must have the same shape")?;
    call.dtype(a.dtype() == b.dtype(), "both operands must have the same type")
}

/// Checks that `limit` is not negative: kernels clamp values to `-limit` and `limit`, which must be in this order.
fn positive(call: Call<'_, '_>, limit: f32) -> Result<()> {
    call.param(limit >= 0.0, "limit", limit, "it must not be negative")
}
