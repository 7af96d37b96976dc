//! Scaling, shifting and limiting each element.

use super::unary::{even_rows, operand};
use crate::ops::prelude::*;

impl Context {
    /// `x * factor` (`ggml_scale`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.scale(ctx.arange(0.0, 4.0, 1.0)?, 0.5)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 0.5, 1.0, 1.5]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::scale_bias`].
    #[doc(alias = "ggml_scale")]
    pub fn scale<'c>(&'c self, a: Tensor<'c>, factor: f32) -> Result<Tensor<'c>> {
        layout(Call { op: entered!("scale"), operands: &[a] }, a, false)?;
        build!(self, sys::ggml_scale(a; factor))
    }

    /// [`Context::scale`] in place (`ggml_scale_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::scale_bias`] and [`Context::relu_inplace`].
    #[doc(alias = "ggml_scale_inplace")]
    pub fn scale_inplace<'c>(&'c self, a: Tensor<'c>, factor: f32) -> Result<Tensor<'c>> {
        layout(Call { op: entered!("scale_inplace"), operands: &[a] }, a, true)?;
        build!(self, sys::ggml_scale_inplace(a; factor))
    }

    /// `x * factor + bias` (`ggml_scale_bias`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.scale_bias(ctx.arange(0.0, 4.0, 1.0)?, 2.0, -1.0)?; // 2 x - 1
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [-1.0, 1.0, 3.0, 5.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, `f16` or `bf16`, [`Error::Shape`](crate::Error::Shape)
    /// unless its rows are contiguous; before ggml 0.28, it must have the strides of a new tensor.
    #[doc(alias = "ggml_scale_bias")]
    pub fn scale_bias<'c>(&'c self, a: Tensor<'c>, factor: f32, bias: f32) -> Result<Tensor<'c>> {
        layout(Call { op: entered!("scale_bias"), operands: &[a] }, a, false)?;
        build!(self, sys::ggml_scale_bias(a; factor, bias))
    }

    /// [`Context::scale_bias`] in place (`ggml_scale_bias_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::scale_bias`] and [`Context::relu_inplace`].
    #[doc(alias = "ggml_scale_bias_inplace")]
    pub fn scale_bias_inplace<'c>(&'c self, a: Tensor<'c>, factor: f32, bias: f32) -> Result<Tensor<'c>> {
        layout(Call { op: entered!("scale_bias_inplace"), operands: &[a] }, a, true)?;
        build!(self, sys::ggml_scale_bias_inplace(a; factor, bias))
    }

    /// `x`, limited to `min` and `max` (`ggml_clamp`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.clamp(ctx.arange(-2.0, 3.0, 1.0)?, -1.0, 1.0)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [-1.0, -1.0, 0.0, 1.0, 1.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless `min <= max`; else as [`Context::relu`]. Before ggml 0.28 also
    /// [`Error::Shape`](crate::Error::Shape) unless rows are evenly spaced.
    #[doc(alias = "ggml_clamp")]
    pub fn clamp<'c>(&'c self, a: Tensor<'c>, min: f32, max: f32) -> Result<Tensor<'c>> {
        limits(Call { op: entered!("clamp"), operands: &[a] }, a, min, max, false)?;
        build!(self, sys::ggml_clamp(a; min, max))
    }

    /// [`Context::clamp`] in place (`ggml_clamp_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::clamp`] and [`Context::relu_inplace`].
    #[doc(alias = "ggml_clamp_inplace")]
    pub fn clamp_inplace<'c>(&'c self, a: Tensor<'c>, min: f32, max: f32) -> Result<Tensor<'c>> {
        limits(Call { op: entered!("clamp_inplace"), operands: &[a] }, a, min, max, true)?;
        build!(self, sys::ggml_clamp_inplace(a; min, max))
    }
}

fn layout(call: Call<'_, '_>, a: Tensor<'_>, in_place: bool) -> Result<()> {
    operand(call, a, in_place)?;
    // Before 0.28, the kernel found row `i` at `i * nb[1]`, so the operand had to be packed.
    let fits = cfg!(ggml_0_28) || a.layout().is_packed();
    call.shape(fits, "the operand must have the strides of a new tensor; use `cont`")
}

fn limits(call: Call<'_, '_>, a: Tensor<'_>, min: f32, max: f32, in_place: bool) -> Result<()> {
    operand(call, a, in_place)?;
    if cfg!(not(ggml_0_28)) {
        even_rows(call, a)?;
    }
    call.param(min <= max, "min", min, format_args!("it must not be above `max`, {max}"))
}
