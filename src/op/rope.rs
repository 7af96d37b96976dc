//! The options of rotary position embedding.

use super::numbered::numbered;
use crate::options::options;
use crate::tensor::Tensor;

numbered! {
    /// Which elements of a row are rotated as pairs, and by which positions.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::RopeMode;
    /// # let ctx = Context::new();
    /// let q = ctx.reshape(ctx.arange(0.0, 4.0, 1.0)?, [4, 1, 1])?; // one head of one token
    /// let position = ctx.input("position", DType::I32, [1])?;
    /// let [normal, neox] = [RopeMode::Normal, RopeMode::NeoX].map(|mode| ctx.rope(q, position, 4, mode));
    /// let (normal, neox) = (normal?, neox?);
    /// # let (graph, mut sched) = (ctx.graph([normal, neox])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(position, &[1])?;
    /// # run.compute()?;
    /// let (sin, cos) = 1.0_f32.sin_cos(); // the first pair turns by 1 radian
    /// assert!((run.get::<f32>(normal)?[0] - (0.0 * cos - 1.0 * sin)).abs() < 1e-3, "elements 0 and 1");
    /// assert!((run.get::<f32>(neox)?[0] - (0.0 * cos - 2.0 * sin)).abs() < 1e-3, "elements 0 and 2");
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[non_exhaustive]
    pub enum RopeMode: u32 {
        /// Pairs of neighbouring elements: 0 and 1, 2 and 3, ….
        Normal = GGML_ROPE_TYPE_NORMAL;
        /// Pairs of elements from the two halves of the rotated part: 0 and `n_dims / 2`, … (GPT-NeoX, Llama in its
        /// published layout).
        NeoX = GGML_ROPE_TYPE_NEOX;
        /// Pairs as in [`RopeMode::NeoX`], but with four positions per token, one for each section of the pairs
        /// (Qwen-VL).
        MRope = GGML_ROPE_TYPE_MROPE;
        /// Pairs as in [`RopeMode::MRope`], but the first three positions are interleaved (Qwen3-VL).
        IMRope = GGML_ROPE_TYPE_IMROPE;
        /// Pairs of elements from the two halves of the whole row, with four positions per token, one for each section
        /// of the pairs. The frequencies restart at each section. `n_dims` is half the row length.
        Vision = GGML_ROPE_TYPE_VISION;
    }
}

impl RopeMode {
    /// Whether the mode takes four positions per token (`ggml_rope_multi`).
    pub(crate) fn is_multi(self) -> bool {
        matches!(self, Self::MRope | Self::IMRope | Self::Vision)
    }
}

options! {
    /// The options of [`Context::rope_ext`](crate::Context::rope_ext).
    ///
    /// ```
    /// use ggml::{ops::{RopeMode, RopeOptions}, prelude::*};
    /// let ctx = Context::new();
    /// let q = ctx.input("q", DType::F32, [64, 2, 5])?;
    /// let positions = ctx.input("positions", DType::I32, [5])?;
    /// assert_eq!(ctx.rope_ext(q, positions, RopeOptions::new(64, RopeMode::NeoX).with_freq_base(1e6))?.ne(), q.ne());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct RopeOptions<'c> {
        /// Rotates `n_dims` elements of each row, which form pairs by `mode`.
        new(n_dims: i32, mode: RopeMode);
        /// Sets the number of pairs for each of four positions per token. Sections repeat if pairs are left over,
        /// except in [`RopeMode::Vision`], where the first two sections must cover all pairs.
        with_sections(sections: [i32; 4] = [0; 4]);
        /// Sets the number of elements before the rotated part (`ggml_rope_set_offset`).
        with_offset(offset: i32 = 0);
        /// Sets divisors of the frequencies, one per pair of the whole row: `[row / 2 or more]`, `f32`. Divisors of
        /// pairs that are not rotated are ignored.
        with_freq_factors(freq_factors: Option<Tensor<'c>> = None, into);
        /// Sets the context length of the model's training, for `YaRN`.
        with_n_ctx_orig(n_ctx_orig: i32 = 0);
        /// Sets the base of the frequencies.
        with_freq_base(freq_base: f32 = 10_000.0);
        /// Sets the factor by which positions are multiplied.
        with_freq_scale(freq_scale: f32 = 1.0);
        /// Sets the weight of extrapolation in the mix of extrapolation and interpolation (`YaRN`); 0 for none.
        with_ext_factor(ext_factor: f32 = 0.0);
        /// Sets the factor by which the rotated elements are multiplied.
        with_attn_factor(attn_factor: f32 = 1.0);
        /// Sets the number of rotations over `n_ctx_orig` positions at which interpolation begins to be mixed in
        /// (`YaRN`): pairs that rotate more often are not interpolated.
        with_beta_fast(beta_fast: f32 = 32.0);
        /// Sets the number of rotations over `n_ctx_orig` positions at which the mix ends (`YaRN`): pairs that rotate
        /// less often are only interpolated.
        with_beta_slow(beta_slow: f32 = 1.0);
    }
}
