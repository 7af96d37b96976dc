//! The options of attention.

use super::Prec;
use crate::options::options;
use crate::tensor::Tensor;

options! {
    /// The options of [`Context::flash_attn_ext`](crate::Context::flash_attn_ext).
    ///
    /// ```
    /// use ggml::{ops::FlashAttnOptions, prelude::*};
    /// // The causal mask of 2 queries and 2 keys, of 4 elements each, in one head.
    /// let ctx = Context::new();
    /// let [q, k, v] = ["q", "k", "v"].map(|name| ctx.input(name, DType::F32, [4, 2, 1]));
    /// let mask = ctx.input("mask", DType::F16, [2, 2])?;
    /// assert_eq!(ctx.flash_attn_ext(q?, k?, v?, FlashAttnOptions::new(0.5).with_mask(mask))?.ne(), [4, 1, 2, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct FlashAttnOptions<'c> {
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

options! {
    /// The options of [`Context::soft_max_ext`](crate::Context::soft_max_ext).
    ///
    /// ```
    /// use ggml::{ops::SoftMaxOptions, prelude::*};
    /// let ctx = Context::new();
    /// let [scores, mask] = [ctx.input("scores", DType::F32, [6, 4])?, ctx.input("mask", DType::F32, [6, 4])?];
    /// assert_eq!(ctx.soft_max_ext(scores, SoftMaxOptions::new().with_scale(0.125).with_mask(mask))?.ne(), [6, 4, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct SoftMaxOptions<'c> {
        /// No scaling, no mask, no sinks.
        new();
        /// Sets the factor by which the operand is multiplied.
        with_scale(scale: f32 = 1.0);
        /// Sets the mask, which is added to the scaled operand. It has the operand's row length and at least as many
        /// rows, and is repeated over the operand's upper dimensions; `f32` or `f16`.
        with_mask(mask: Option<Tensor<'c>> = None, into);
        /// Sets the largest of the slopes by which the mask is multiplied per head (third dimension, `ALiBi`); 0 for no
        /// slopes.
        with_max_bias(max_bias: f32 = 0.0);
        /// Sets sinks: one more logit per head (third dimension), which only takes part in the softmax's sum;
        /// `[heads]`, `f32`.
        with_sinks(sinks: Option<Tensor<'c>> = None, into);
    }
}

#[cfg(ggml_0_28)]
options! {
    /// The optional operands of [`Context::top_k_mask`](crate::Context::top_k_mask).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::TopKMaskOptions;
    /// # let ctx = Context::new();
    /// let mask = ctx.input("mask", DType::F16, [256, 10])?; // 256 cells, 10 tokens
    /// let picks = ctx.top_k(ctx.input("scores", DType::F32, [256, 10])?, 32)?;
    /// let cells = TopKMaskOptions::new().with_extra(ctx.input("sinks", DType::I32, [4, 10])?);
    /// assert_eq!(ctx.top_k_mask(mask, picks, cells)?.ne(), [256, 10, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct TopKMaskOptions<'c> {
        /// No options set: each pick is a cell, and every pick counts.
        new();
        /// Sets a score for each possible pick of a row, `[n_pick, …]` of `f32`: a pick counts if its score is above
        /// negative infinity. Without scores, each pick counts.
        with_score(score: Option<Tensor<'c>> = None, into);
        /// Sets the cells that belong to a pick, `[n_cells, n_pick]` of `i32`. Without this, each pick is a cell.
        with_blocks(blocks: Option<Tensor<'c>> = None, into);
        /// Sets cells of each row that are kept in any case, `[n_extra, …]` of `i32`.
        with_extra(extra: Option<Tensor<'c>> = None, into);
    }
}
