//! Softmax over rows.

use super::check::{Entered, OperandList};
use crate::op::SoftMaxOptions;
use crate::ops::prelude::*;

impl<'c> SoftMaxOptions<'c> {
    fn operands(self, a: Tensor<'c>) -> OperandList<'c> {
        OperandList::new(a, [self.mask, self.sinks])
    }
}

impl Context {
    /// Softmax of each row (`ggml_soft_max`). The result is `f32`, of the shape of `a`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.scale(ctx.arange(0.0, 2.0, 1.0)?, 3.0_f32.ln())?; // 0 and ln 3
    /// let y = ctx.soft_max(x)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert!(run.get::<f32>(y)?.iter().zip([0.25, 0.75]).all(|(y, p)| (y - p).abs() < 1e-6));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `a` is contiguous, [`Error::DType`](crate::Error::DType) unless it is
    /// `f32`.
    #[doc(alias = "ggml_soft_max")]
    pub fn soft_max<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("soft_max");
        self.soft_max_ext(a, SoftMaxOptions::new())
    }

    /// [`Context::soft_max`] in place (`ggml_soft_max_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::soft_max_ext_inplace`].
    #[doc(alias = "ggml_soft_max_inplace")]
    pub fn soft_max_inplace<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("soft_max_inplace");
        self.soft_max_ext_inplace(a, SoftMaxOptions::new())
    }

    /// Softmax of each row of `a * scale + mask * slope` (`ggml_soft_max_ext`, `ggml_soft_max_add_sinks`).
    ///
    /// # Errors
    ///
    /// As [`Context::soft_max`]; [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) where mask
    /// or sinks do not fit; [`Error::Param`](crate::Error::Param) unless `scale` and `max_bias` are finite, the latter not
    /// negative, and 0 without a mask.
    #[doc(alias = "ggml_soft_max_ext")]
    #[doc(alias = "ggml_soft_max_add_sinks")]
    pub fn soft_max_ext<'c>(&'c self, a: Tensor<'c>, how: SoftMaxOptions<'c>) -> Result<Tensor<'c>> {
        check(entered!("soft_max_ext"), a, how)?;
        let SoftMaxOptions { scale, mask, max_bias, sinks } = how;
        let t = build!(self, &how.operands(a), sys::ggml_soft_max_ext(a, mask; scale, max_bias))?;
        self.with_sinks(t, a, sinks)
    }

    /// [`Context::soft_max_ext`] in place (`ggml_soft_max_ext_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::soft_max_ext`] and [`Context::norm_inplace`]; [`Error::Shape`](crate::Error::Shape) where mask or sinks
    /// share memory with `a`.
    #[doc(alias = "ggml_soft_max_ext_inplace")]
    pub fn soft_max_ext_inplace<'c>(&'c self, a: Tensor<'c>, how: SoftMaxOptions<'c>) -> Result<Tensor<'c>> {
        check(entered!("soft_max_ext_inplace"), a, how)?;
        let operands = how.operands(a);
        let call = Call { op: entered!("soft_max_ext_inplace"), operands: &operands };
        call.in_place(a, &[])?;
        call.apart(a, operands.get(1..).unwrap_or_default())?;
        let SoftMaxOptions { scale, mask, max_bias, sinks } = how;
        let t = build!(self, &operands, sys::ggml_soft_max_ext_inplace(a, mask; scale, max_bias))?;
        self.with_sinks(t, a, sinks)
    }

    /// Adds the sinks to the softmax `t` of `a`, which [`check`] has accepted.
    fn with_sinks<'c>(&'c self, t: Tensor<'c>, a: Tensor<'c>, sinks: Option<Tensor<'c>>) -> Result<Tensor<'c>> {
        let Some(sinks) = sinks else { return Ok(t) };
        if a.elements() == 1 {
            // With one element, the result has the layout of the sinks, so the allocator could give the result their
            // memory. The kernel reads the sinks after it writes there. An output keeps its memory, as weights do.
            drop(self.output(sinks));
        }
        amend!(sys::ggml_soft_max_add_sinks(t, sinks))?;
        Ok(t)
    }

    /// The gradient of [`Context::soft_max_ext`] with this `scale` with respect to its operand, from its result `y`,
    /// and `grad`, the gradient with respect to `y` (`ggml_soft_max_ext_back`). No device supports a `max_bias` here,
    /// so C gets 0.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`; [`Error::Shape`](crate::Error::Shape) unless both
    /// are packed and of one shape; [`Error::Param`](crate::Error::Param) unless `scale` is finite.
    #[doc(alias = "ggml_soft_max_ext_back")]
    pub fn soft_max_ext_back<'c>(&'c self, grad: Tensor<'c>, y: Tensor<'c>, scale: f32) -> Result<Tensor<'c>> {
        check_back(entered!("soft_max_ext_back"), grad, y, scale)?;
        build!(self, sys::ggml_soft_max_ext_back(grad, y; scale, 0.0))
    }

    /// [`Context::soft_max_ext_back`] in place: writes to `grad` (`ggml_soft_max_ext_back_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::soft_max_ext_back`]; for `grad` as [`Context::norm_inplace`];
    /// [`Error::Shape`](crate::Error::Shape) where `y` overlaps `grad` without being identical.
    #[doc(alias = "ggml_soft_max_ext_back_inplace")]
    pub fn soft_max_ext_back_inplace<'c>(&'c self, grad: Tensor<'c>, y: Tensor<'c>, scale: f32) -> Result<Tensor<'c>> {
        check_back(entered!("soft_max_ext_back_inplace"), grad, y, scale)?;
        Call { op: entered!("soft_max_ext_back_inplace"), operands: &[grad, y] }.in_place(grad, &[y])?;
        build!(self, sys::ggml_soft_max_ext_back_inplace(grad, y; scale, 0.0))
    }
}

/// Checks what the builders of a softmax need, except for writing in place.
fn check(op: Entered, a: Tensor<'_>, how: SoftMaxOptions<'_>) -> Result<()> {
    let call = Call { op, operands: &how.operands(a) };
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")?;
    call.param(how.scale.is_finite(), "scale", how.scale, "it must be finite")?;
    let bias = how.max_bias.is_finite() && how.max_bias >= 0.0 && (how.max_bias == 0.0 || how.mask.is_some());
    call.param(bias, "max_bias", how.max_bias, "it must be finite, not negative, and 0 without a mask")?;
    let [a0, a1, a2, a3] = a.ne();
    if let Some(mask) = how.mask {
        call.dtype(matches!(mask.dtype(), DType::F32 | DType::F16), "the mask must be f32 or f16")?;
        call.shape(mask.is_contiguous(), "the mask must be contiguous; use `cont`")?;
        let [m0, m1, m2, m3] = mask.ne();
        let fits = m0 == a0 && m1 >= a1 && a2 % m2 == 0 && a3 % m3 == 0;
        call.shape(fits, "the mask must have the operand's row length and at least as many rows, and its upper dimensions must divide the operand's")?;
    }
    if let Some(sinks) = how.sinks {
        call.dtype(sinks.dtype() == DType::F32, "the sinks must be f32")?;
        call.shape(sinks.is_contiguous() && sinks.ne() == [a2, 1, 1, 1], "there must be one sink per head")?;
    }
    Ok(())
}

fn check_back(op: Entered, grad: Tensor<'_>, y: Tensor<'_>, scale: f32) -> Result<()> {
    let call = Call { op, operands: &[grad, y] };
    call.dtype(grad.dtype() == DType::F32 && y.dtype() == DType::F32, "both operands must be f32")?;
    call.shape(grad.ne() == y.ne(), "both operands must have the same shape")?;
    // The kernel finds row `i` at `i * nb[1]` (H10), so the operands must be packed.
    let packed = grad.layout().is_packed() && y.layout().is_packed();
    call.shape(packed, "both operands must have the strides of a new tensor; use `cont`")?;
    call.param(scale.is_finite(), "scale", scale, "it must be finite")
}
