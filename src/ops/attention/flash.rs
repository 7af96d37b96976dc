//! Attention as one operation.

use ggml_sys as sys;

use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::guard::guarded;
use crate::ops::check::{Call, Operands};
use crate::ops::precision::Prec;
use crate::options::options;
use crate::tensor::Tensor;

options! {
    /// The options of [`Context::flash_attn_ext`].
    ///
    /// ```
    /// use ggml::{FlashAttn, prelude::*};
    /// // The causal mask of 2 queries and 2 keys, of 4 elements each, in one head.
    /// let ctx = Context::new();
    /// let [q, k, v] = ["q", "k", "v"].map(|name| ctx.input(name, DType::F32, [4, 2, 1]));
    /// let mask = ctx.input("mask", DType::F16, [2, 2])?;
    /// assert_eq!(ctx.flash_attn_ext(q?, k?, v?, FlashAttn::new(0.5).with_mask(mask))?.ne(), [4, 1, 2, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct FlashAttn<'c> {
        /// Multiplies the scores by `scale`, usually the inverse square root of the size of a key.
        new(scale: f32);
        /// Sets the mask, which is added to the scores: `[n_kv, n_batch or more, heads or a divisor, batches or a
        /// divisor]`, `f16` and contiguous. Negative infinity hides a key from a query.
        with_mask(mask: Option<Tensor<'c>> = None, into);
        /// Sets the largest of the slopes by which the mask is multiplied per head (`ALiBi`); 0 for no slopes.
        with_max_bias(max_bias: f32 = 0.0);
        /// Sets the soft cap of the scores, `cap * tanh(score / cap)`, before the mask is added; 0 for no cap.
        with_logit_softcap(logit_softcap: f32 = 0.0);
        /// Sets attention sinks: one more score per head, which only takes part in the softmax's sum; `[heads]`, `f32`.
        with_sinks(sinks: Option<Tensor<'c>> = None, into);
        /// Sets the least precision of the accumulator; `None` leaves it to the device. The CPU supports only
        /// [`Prec::F32`].
        with_acc(acc: Option<Prec> = None, into);
        /// Sets the most keys that the mask leaves visible to any query, or 0 if unknown. Devices may skip other keys,
        /// so a number that is too small may leave visible keys out.
        with_n_kv_max(n_kv_max: i32 = 0);
    }
}

impl Context {
    /// Attention: `softmax(q k^T * scale + mask) v` for each head (`ggml_flash_attn_ext`, `ggml_flash_attn_ext_set_prec`,
    /// `ggml_flash_attn_ext_set_n_kv_max`, `ggml_flash_attn_ext_add_sinks`).
    ///
    /// `q` is `[size, n_batch, heads, batches]`, `k` is `[size, n_kv, kv_heads, batches]`, and `v` is
    /// `[v_size, n_kv, kv_heads, batches]`; each head of keys serves `heads / kv_heads` neighbouring heads of queries. The
    /// result is `[v_size, heads, n_batch, batches]`, of `f32`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::FlashAttn;
    /// # let ctx = Context::new();
    /// let q = ctx.input("q", DType::F32, [64, 10, 8])?; // 10 tokens, 8 heads
    /// let [k, v] = ["k", "v"].map(|name| ctx.input(name, DType::F16, [64, 256, 2])); // 256 cells, 2 heads
    /// let mask = ctx.input("mask", DType::F16, [256, 10])?;
    /// let attended = ctx.flash_attn_ext(q, k?, v?, FlashAttn::new(0.125).with_mask(mask))?;
    /// assert_eq!(attended.ne(), [64, 8, 10, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, [`Error::DType`](crate::Error::DType) unless `q`
    /// and the sinks are `f32` and the mask is `f16`; [`Error::Param`](crate::Error::Param) unless `scale`, `max_bias` and
    /// `logit_softcap` are finite, `max_bias` and `n_kv_max` are not negative, the former is 0 without a mask, and
    /// `acc` has at least 16 bits.
    #[doc(alias = "ggml_flash_attn_ext")]
    #[doc(alias = "ggml_flash_attn_ext_set_prec")]
    #[doc(alias = "ggml_flash_attn_ext_set_n_kv_max")]
    #[doc(alias = "ggml_flash_attn_ext_add_sinks")]
    pub fn flash_attn_ext<'c>(
        &'c self,
        q: Tensor<'c>,
        k: Tensor<'c>,
        v: Tensor<'c>,
        how: FlashAttn<'c>,
    ) -> Result<Tensor<'c>> {
        let operands = Operands::new(q, [Some(k), Some(v), how.mask, how.sinks]);
        let call = Call { op: "flash_attn_ext", operands: &operands };
        // H9: C compares only a few of these dimensions, but kernels rely on all.
        let ([q0, q1, q2, q3], [k0, k1, k2, k3]) = (q.ne(), k.ne());
        let [v0, v_rest @ ..] = v.ne();
        call.dtype(q.dtype() == DType::F32, "the queries must be f32")?;
        call.shape(
            k0 == q0 && q2 % k2 == 0 && k3 == q3,
            "keys must have the queries' size and batches, and a number of heads that divides theirs",
        )?;
        call.shape(v_rest == [k1, k2, k3], "values must have the upper dimensions of keys")?;
        fits(call, q, k, how)?;
        call.result([v0, q2, q1, q3], DType::F32)?;
        let mask = how.mask.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let t = self.build("ggml_flash_attn_ext", &operands, |c| {
            let (scale, bias, cap) = (how.scale, how.max_bias, how.logit_softcap);
            // SAFETY: the context is live and has room; the operands are live for 'c; types and shapes were checked
            // above and in `fits` (H9); C takes NULL for no mask. The result keeps them.
            unsafe { sys::ggml_flash_attn_ext(c, q.as_ptr(), k.as_ptr(), v.as_ptr(), mask, scale, bias, cap) }
        })?;
        if let Some(acc) = how.acc {
            // SAFETY: `t` is live, made just now, and an attention, as C asserts; C writes one of its parameters.
            unsafe { guarded!(call, sys::ggml_flash_attn_ext_set_prec(t.as_ptr(), acc.raw())) }?;
        }
        // SAFETY: as above; `fits` has checked that the number is not negative.
        unsafe { guarded!(call, sys::ggml_flash_attn_ext_set_n_kv_max(t.as_ptr(), how.n_kv_max)) }?;
        if let Some(sinks) = how.sinks {
            // SAFETY: as above; the sinks live for 'c, are `f32` and one per head (`fits`). The result keeps them.
            unsafe { guarded!(call, sys::ggml_flash_attn_ext_add_sinks(t.as_ptr(), sinks.as_ptr())) }?;
        }
        Ok(t)
    }
}

/// Checks the options, and the shapes and types of mask and sinks.
fn fits(call: Call<'_, '_>, q: Tensor<'_>, k: Tensor<'_>, how: FlashAttn<'_>) -> Result<()> {
    let ([_, q1, q2, q3], [_, k1, ..]) = (q.ne(), k.ne());
    call.param(how.scale.is_finite(), "scale", how.scale, "it must be finite")?;
    let bias = how.max_bias.is_finite() && how.max_bias >= 0.0 && (how.max_bias == 0.0 || how.mask.is_some());
    call.param(bias, "max_bias", how.max_bias, "it must be finite, not negative, and 0 without a mask")?;
    call.param(how.logit_softcap.is_finite(), "logit_softcap", how.logit_softcap, "it must be finite")?;
    call.param(how.n_kv_max >= 0, "n_kv_max", how.n_kv_max, "it must not be negative")?;
    let sums = !matches!(how.acc, Some(Prec::Q8 | Prec::Q4));
    call.param(sums, "acc", how.acc, "the accumulator must have at least 16 bits")?;
    if let Some(mask) = how.mask {
        call.dtype(mask.dtype() == DType::F16, "the mask must be f16")?;
        call.shape(mask.is_contiguous(), "the mask must be contiguous; use `cont`")?;
        let [m0, m1, m2, m3] = mask.ne();
        let fits = m0 == k1 && m1 >= q1 && q2 % m2 == 0 && q3 % m3 == 0;
        call.shape(fits, "the mask must be [keys, queries or more, …], the rest divisors of heads and batches")?;
    }
    if let Some(sinks) = how.sinks {
        call.dtype(sinks.dtype() == DType::F32, "the sinks must be f32")?;
        call.shape(sinks.is_contiguous() && sinks.ne() == [q2, 1, 1, 1], "there must be one sink per head")?;
    }
    Ok(())
}
