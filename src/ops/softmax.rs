//! Softmax over rows, and the mask that goes before it.

use ggml_sys as sys;

use super::check::{Call, Operands, is_packed};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// What may be done to the rows of a [`Context::soft_max_ext`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SoftMax<'c> {
    /// Factor of the operand.
    pub scale: f32,
    /// Added to the scaled operand: of its row length, of at least as many rows, and repeated over its upper dimensions;
    /// `f32` or `f16`.
    pub mask: Option<Tensor<'c>>,
    /// The largest slope by which the mask is multiplied per head (third dimension); 0 for none (`ALiBi`).
    pub max_bias: f32,
    /// One more logit per head (third dimension) that takes part in the sum only; `f32`.
    pub sinks: Option<Tensor<'c>>,
}

impl Default for SoftMax<'_> {
    /// No scaling, no mask, no sinks.
    fn default() -> Self {
        Self { scale: 1.0, mask: None, max_bias: 0.0, sinks: None }
    }
}

impl Context {
    /// Softmax of each row (`ggml_soft_max`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `a` is contiguous, [`Error::DType`](crate::Error::DType) unless it is
    /// `f32`.
    #[doc(alias = "ggml_soft_max")]
    pub fn soft_max<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        self.soft_max_ext(a, SoftMax::default())
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
        let operands = Operands::new(a, [how.mask, how.sinks]);
        let call = Call { op: "soft_max_ext", operands: &operands };
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")?;
        call.param(how.scale.is_finite(), "scale", how.scale, "it must be finite")?;
        let bias = how.max_bias.is_finite() && how.max_bias >= 0.0 && (how.max_bias == 0.0 || how.mask.is_some());
        call.param(bias, "max_bias", how.max_bias, "it must be finite, not negative, and 0 without a mask")?;
        let [a0, a1, a2, a3] = a.ne();
        if let Some(mask) = how.mask {
            call.dtype(matches!(mask.dtype(), DType::F32 | DType::F16), "the mask must be f32 or f16")?;
            call.shape(mask.is_contiguous(), "the mask must be contiguous")?;
            let [m0, m1, m2, m3] = mask.ne();
            let fits = m0 == a0 && m1 >= a1 && a2 % m2 == 0 && a3 % m3 == 0;
            call.shape(
                fits,
                "the mask must have the operand's row length, at least as many rows, and divide the rest",
            )?;
        }
        if let Some(sinks) = how.sinks {
            call.dtype(sinks.dtype() == DType::F32, "the sinks must be f32")?;
            call.shape(sinks.is_contiguous() && sinks.ne() == [a2, 1, 1, 1], "there must be one sink per head")?;
        }
        let mask = how.mask.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let t = self.build("ggml_soft_max_ext", &operands, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps them as sources.
            unsafe { sys::ggml_soft_max_ext(c, a.as_ptr(), mask, how.scale, how.max_bias) }
        })?;
        if let Some(sinks) = how.sinks {
            crate::guard::call("ggml_soft_max_add_sinks", || {
                // SAFETY: `t` was made just now and nobody else has it; the sinks fit by the checks above and live for 'c.
                unsafe { sys::ggml_soft_max_add_sinks(t.as_ptr(), sinks.as_ptr()) }
            })?;
        }
        Ok(t)
    }

    /// `a` with negative infinity for what lies in the future: where the column is above the row plus `n_past`
    /// (`ggml_diag_mask_inf`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, [`Error::Shape`](crate::Error::Shape) unless it has the
    /// strides of a new tensor, [`Error::Param`](crate::Error::Param) where `n_past` is negative or, with the number of
    /// rows, 2³¹ or more.
    #[doc(alias = "ggml_diag_mask_inf")]
    pub fn diag_mask_inf<'c>(&'c self, a: Tensor<'c>, n_past: i32) -> Result<Tensor<'c>> {
        let call = Call { op: "diag_mask_inf", operands: &[a] };
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        call.shape(is_packed(a.ptr()), "the operand must have the strides of a new tensor; use `cont`")?;
        let [_, rows, ..] = a.ne();
        // The kernel adds them in 32 bits.
        let sum = rows.checked_add(n_past.into()).is_some_and(|n| i32::try_from(n).is_ok());
        call.param(
            n_past >= 0 && sum,
            "n_past",
            n_past,
            "it must not be negative, nor reach 2^31 with the rows added",
        )?;
        self.build("ggml_diag_mask_inf", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c. The result keeps it as source.
            unsafe { sys::ggml_diag_mask_inf(c, a.as_ptr(), n_past) }
        })
    }
}
