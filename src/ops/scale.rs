//! Scaling, shifting and limiting each element.

use ggml_sys as sys;

use super::check::Call;
use super::unary::{even_rows, operand};
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Tensor;

/// The type of `ggml_scale` and `ggml_scale_inplace`.
type Builder = unsafe extern "C-unwind" fn(*mut sys::ggml_context, *mut sys::ggml_tensor, f32) -> *mut sys::ggml_tensor;

/// The type of C builders with two parameters.
type TwoParams =
    unsafe extern "C-unwind" fn(*mut sys::ggml_context, *mut sys::ggml_tensor, f32, f32) -> *mut sys::ggml_tensor;

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
        let call = Call { op: "scale", operands: &[a] };
        self.scaled(call, "ggml_scale", sys::ggml_scale, a, factor, false)
    }

    /// [`Context::scale`] in place (`ggml_scale_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::scale_bias`] and [`Context::relu_inplace`].
    #[doc(alias = "ggml_scale_inplace")]
    pub fn scale_inplace<'c>(&'c self, a: Tensor<'c>, factor: f32) -> Result<Tensor<'c>> {
        let call = Call { op: "scale_inplace", operands: &[a] };
        self.scaled(call, "ggml_scale_inplace", sys::ggml_scale_inplace, a, factor, true)
    }

    fn scaled<'c>(
        &'c self,
        call: Call<'_, 'c>,
        c: &'static str,
        f: Builder,
        a: Tensor<'c>,
        factor: f32,
        in_place: bool,
    ) -> Result<Tensor<'c>> {
        packed(call, a, in_place)?;
        self.build(c, &[a], |c| {
            // SAFETY: `f` is one of the two above. The context is live and has room; `a` is live for 'c; `packed` has
            // checked its layout and, where `f` writes to it, that it may. The result keeps it.
            unsafe { f(c, a.as_ptr(), factor) }
        })
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
    /// unless it has the strides of a new tensor.
    #[doc(alias = "ggml_scale_bias")]
    pub fn scale_bias<'c>(&'c self, a: Tensor<'c>, factor: f32, bias: f32) -> Result<Tensor<'c>> {
        packed(Call { op: "scale_bias", operands: &[a] }, a, false)?;
        self.line("ggml_scale_bias", sys::ggml_scale_bias, a, factor, bias)
    }

    /// [`Context::scale_bias`] in place (`ggml_scale_bias_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::scale_bias`] and [`Context::relu_inplace`].
    #[doc(alias = "ggml_scale_bias_inplace")]
    pub fn scale_bias_inplace<'c>(&'c self, a: Tensor<'c>, factor: f32, bias: f32) -> Result<Tensor<'c>> {
        packed(Call { op: "scale_bias_inplace", operands: &[a] }, a, true)?;
        self.line("ggml_scale_bias_inplace", sys::ggml_scale_bias_inplace, a, factor, bias)
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
    /// [`Error::Param`](crate::Error::Param) unless `min <= max`; else as [`Context::leaky_relu`].
    #[doc(alias = "ggml_clamp")]
    pub fn clamp<'c>(&'c self, a: Tensor<'c>, min: f32, max: f32) -> Result<Tensor<'c>> {
        limits(Call { op: "clamp", operands: &[a] }, a, min, max, false)?;
        self.line("ggml_clamp", sys::ggml_clamp, a, min, max)
    }

    /// [`Context::clamp`] in place (`ggml_clamp_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::clamp`] and [`Context::relu_inplace`].
    #[doc(alias = "ggml_clamp_inplace")]
    pub fn clamp_inplace<'c>(&'c self, a: Tensor<'c>, min: f32, max: f32) -> Result<Tensor<'c>> {
        limits(Call { op: "clamp_inplace", operands: &[a] }, a, min, max, true)?;
        self.line("ggml_clamp_inplace", sys::ggml_clamp_inplace, a, min, max)
    }

    /// Calls `f`; the caller has checked the operand.
    fn line<'c>(&'c self, c: &'static str, f: TwoParams, a: Tensor<'c>, x: f32, y: f32) -> Result<Tensor<'c>> {
        self.build(c, &[a], |c| {
            // SAFETY: `f` is one of the four above; `packed` or `limits` has checked the layout of `a` and, where `f`
            // writes to it, that it may. The context is live and has room; `a` is live for 'c. The result keeps it.
            unsafe { f(c, a.as_ptr(), x, y) }
        })
    }
}

fn packed(call: Call<'_, '_>, a: Tensor<'_>, in_place: bool) -> Result<()> {
    operand(call, a, in_place)?;
    call.shape(a.layout().is_packed(), "the operand must have the strides of a new tensor; use `cont`")
}

fn limits(call: Call<'_, '_>, a: Tensor<'_>, min: f32, max: f32, in_place: bool) -> Result<()> {
    operand(call, a, in_place)?;
    even_rows(call, a)?;
    call.param(min <= max, "min", min, format_args!("it must not be above `max`, {max}"))
}
