//! Flash attention: attention as one operation.

use crate::op::{FlashAttnOptions, Prec};
use crate::ops::check::OperandList;
use crate::ops::prelude::*;

impl Context {
    /// Attention: `softmax(q k^T * scale + mask) v` for each head (`ggml_flash_attn_ext`,
    /// `ggml_flash_attn_ext_set_prec`, `ggml_flash_attn_ext_set_n_kv_max`, `ggml_flash_attn_ext_add_sinks`).
    ///
    /// `q` is `[size, n_batch, heads, batches]`, `k` is `[size, n_kv, kv_heads, batches]`, and `v` is `[v_size, n_kv,
    /// kv_heads, batches]`; each head of keys serves `heads / kv_heads` neighbouring heads of queries. The result is
    /// `[v_size, heads, n_batch, batches]`, of `f32`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::FlashAttnOptions;
    /// # let ctx = Context::new();
    /// let q = ctx.input("q", DType::F32, [64, 10, 8])?; // 10 tokens, 8 heads
    /// let [k, v] = ["k", "v"].map(|name| ctx.input(name, DType::F16, [64, 256, 2])); // 256 cells, 2 heads
    /// let mask = ctx.input("mask", DType::F16, [256, 10])?;
    /// let attended = ctx.flash_attn_ext(q, k?, v?, FlashAttnOptions::new(0.125).with_mask(mask))?;
    /// assert_eq!(attended.ne(), [64, 8, 10, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, [`Error::DType`](crate::Error::DType) unless
    /// `q` and the sinks are `f32` and the mask is `f16`; [`Error::Param`](crate::Error::Param) unless `scale`,
    /// `max_bias` and `logit_softcap` are finite, `max_bias` and `n_kv_max` are not negative, the former is 0 without a
    /// mask, and `acc` has at least 16 bits.
    #[doc(alias = "ggml_flash_attn_ext")]
    #[doc(alias = "ggml_flash_attn_ext_set_prec")]
    #[doc(alias = "ggml_flash_attn_ext_set_n_kv_max")]
    #[doc(alias = "ggml_flash_attn_ext_add_sinks")]
    pub fn flash_attn_ext<'c>(
        &'c self,
        q: Tensor<'c>,
        k: Tensor<'c>,
        v: Tensor<'c>,
        how: FlashAttnOptions<'c>,
    ) -> Result<Tensor<'c>> {
        let operands = OperandList::new(q, [Some(k), Some(v), how.mask, how.sinks]);
        let call = Call { op: entered!("flash_attn_ext"), operands: &operands };
        // H9: C compares only a few dimensions of the operands, but kernels rely on all of them.
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
        let FlashAttnOptions { mask, scale, max_bias, logit_softcap: cap, .. } = how;
        let t = build!(self, &operands, sys::ggml_flash_attn_ext(q, k, v, mask; scale, max_bias, cap))?;
        if let Some(acc) = how.acc {
            amend!(sys::ggml_flash_attn_ext_set_prec(t; acc.raw()))?;
        }
        amend!(sys::ggml_flash_attn_ext_set_n_kv_max(t; how.n_kv_max))?;
        if let Some(sinks) = how.sinks {
            amend!(sys::ggml_flash_attn_ext_add_sinks(t, sinks))?;
        }
        Ok(t)
    }
}

/// Checks the options of flash attention, and the shapes and types of mask and sinks.
fn fits(call: Call<'_, '_>, q: Tensor<'_>, k: Tensor<'_>, how: FlashAttnOptions<'_>) -> Result<()> {
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
