//! Softmax over rows.

use ggml_sys as sys;

use super::check::{Call, Operands};
use crate::context::{Context, build};
use crate::dtype::DType;
use crate::error::Result;
use crate::guard::guarded;
use crate::options::options;
use crate::tensor::Tensor;

options! {
    /// The options of [`Context::soft_max_ext`].
    ///
    /// ```
    /// use ggml::{SoftMax, prelude::*};
    /// let ctx = Context::new();
    /// let [scores, mask] = [ctx.input("scores", DType::F32, [6, 4])?, ctx.input("mask", DType::F32, [6, 4])?];
    /// assert_eq!(ctx.soft_max_ext(scores, SoftMax::new().with_scale(0.125).with_mask(mask))?.ne(), [6, 4, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct SoftMax<'c> {
        /// No scaling, no mask, no sinks.
        new();
        /// Sets the factor of the operand.
        with_scale(scale: f32 = 1.0);
        /// Sets the mask, which is added to the scaled operand: with its row length and at least as many rows, repeated
        /// over its upper dimensions; `f32` or `f16`.
        with_mask(mask: Option<Tensor<'c>> = None, into);
        /// Sets the largest of the slopes by which the mask is multiplied per head (third dimension, `ALiBi`); 0 for no
        /// slopes.
        with_max_bias(max_bias: f32 = 0.0);
        /// Sets sinks: one more logit per head (third dimension), which only takes part in the sum; `[heads]`, `f32`.
        with_sinks(sinks: Option<Tensor<'c>> = None, into);
    }
}

/// The type of the C builders of a softmax.
type Builder = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    f32,
    f32,
) -> *mut sys::ggml_tensor;

impl<'c> SoftMax<'c> {
    fn operands(self, a: Tensor<'c>) -> Operands<'c> {
        Operands::new(a, [self.mask, self.sinks])
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
        self.soft_max_ext(a, SoftMax::new())
    }

    /// [`Context::soft_max`] in place (`ggml_soft_max_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::soft_max_ext_inplace`].
    #[doc(alias = "ggml_soft_max_inplace")]
    pub fn soft_max_inplace<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        self.soft_max_ext_inplace(a, SoftMax::new())
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
    pub fn soft_max_ext<'c>(&'c self, a: Tensor<'c>, how: SoftMax<'c>) -> Result<Tensor<'c>> {
        check("soft_max_ext", a, how)?;
        self.softened("ggml_soft_max_ext", sys::ggml_soft_max_ext, a, how)
    }

    /// [`Context::soft_max_ext`] in place (`ggml_soft_max_ext_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::soft_max_ext`] and [`Context::norm_inplace`]; [`Error::Shape`](crate::Error::Shape) where mask or sinks
    /// share memory with `a`.
    #[doc(alias = "ggml_soft_max_ext_inplace")]
    pub fn soft_max_ext_inplace<'c>(&'c self, a: Tensor<'c>, how: SoftMax<'c>) -> Result<Tensor<'c>> {
        check("soft_max_ext_inplace", a, how)?;
        let operands = how.operands(a);
        let call = Call { op: "soft_max_ext_inplace", operands: &operands };
        call.in_place(a, &[])?;
        call.apart(a, operands.get(1..).unwrap_or_default())?;
        self.softened("ggml_soft_max_ext_inplace", sys::ggml_soft_max_ext_inplace, a, how)
    }

    /// Calls one of the two builders; the caller has checked all operands.
    fn softened<'c>(&'c self, call: &'static str, f: Builder, a: Tensor<'c>, how: SoftMax<'c>) -> Result<Tensor<'c>> {
        let mask = how.mask.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let t = self.build(call, &how.operands(a), |c| {
            // SAFETY: `f` is one of ggml's two builders. The context is live and has room; the operands are live for
            // 'c; `check` has checked types and shapes; the caller may write to `a` if `f` does. The result keeps them.
            unsafe { f(c, a.as_ptr(), mask, how.scale, how.max_bias) }
        })?;
        if let Some(sinks) = how.sinks {
            if a.elements() == 1 {
                // The result has the layout of the sinks, so the allocator could give it their memory, but the kernel
                // reads them after it writes there. An output keeps its memory, and so do weights.
                drop(self.output(sinks));
            }
            // SAFETY: `t` is live and a softmax, as C asserts; `check` has checked the sinks, which live for 'c.
            unsafe { guarded!(call, sys::ggml_soft_max_add_sinks(t.as_ptr(), sinks.as_ptr())) }?;
        }
        Ok(t)
    }

    /// The gradient of [`Context::soft_max_ext`] with this `scale` with respect to its operand, from its result `y` and
    /// the gradient of that, `grad` (`ggml_soft_max_ext_back`). No device supports a `max_bias` here, so C gets 0.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`; [`Error::Shape`](crate::Error::Shape) unless both
    /// are packed and of one shape; [`Error::Param`](crate::Error::Param) unless `scale` is finite.
    #[doc(alias = "ggml_soft_max_ext_back")]
    pub fn soft_max_ext_back<'c>(&'c self, grad: Tensor<'c>, y: Tensor<'c>, scale: f32) -> Result<Tensor<'c>> {
        check_back("soft_max_ext_back", grad, y, scale)?;
        // SAFETY: the context is live and has room; the operands are live for 'c; `check_back` has checked the
        // types, shapes and layouts that the kernel needs; C asserts nothing. The result keeps both.
        unsafe { build!(self, &[grad, y], sys::ggml_soft_max_ext_back(c, grad.as_ptr(), y.as_ptr(), scale, 0.0)) }
    }

    /// [`Context::soft_max_ext_back`] in place: writes to `grad` (`ggml_soft_max_ext_back_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::soft_max_ext_back`]; for `grad` as [`Context::norm_inplace`];
    /// [`Error::Shape`](crate::Error::Shape) where `y` overlaps `grad` without being identical.
    #[doc(alias = "ggml_soft_max_ext_back_inplace")]
    pub fn soft_max_ext_back_inplace<'c>(&'c self, grad: Tensor<'c>, y: Tensor<'c>, scale: f32) -> Result<Tensor<'c>> {
        check_back("soft_max_ext_back_inplace", grad, y, scale)?;
        Call { op: "soft_max_ext_back_inplace", operands: &[grad, y] }.in_place(grad, &[y])?;
        // SAFETY: as in `soft_max_ext_back`; `grad` may be written to (`in_place`), and the result is a view of it.
        unsafe {
            build!(self, &[grad, y], sys::ggml_soft_max_ext_back_inplace(c, grad.as_ptr(), y.as_ptr(), scale, 0.0))
        }
    }
}

/// Checks what the builders of a softmax need, except for writing in place.
fn check(op: &'static str, a: Tensor<'_>, how: SoftMax<'_>) -> Result<()> {
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

fn check_back(op: &'static str, grad: Tensor<'_>, y: Tensor<'_>, scale: f32) -> Result<()> {
    let call = Call { op, operands: &[grad, y] };
    call.dtype(grad.dtype() == DType::F32 && y.dtype() == DType::F32, "both operands must be f32")?;
    call.shape(grad.ne() == y.ne(), "both operands must have the same shape")?;
    // The kernel finds row `i` at `i * nb[1]` (H10).
    let packed = grad.layout().is_packed() && y.layout().is_packed();
    call.shape(packed, "both operands must have the strides of a new tensor; use `cont`")?;
    call.param(scale.is_finite(), "scale", scale, "it must be finite")
}
