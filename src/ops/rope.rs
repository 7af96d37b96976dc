//! Rotary position embedding.

use ggml_sys as sys;

use super::check::{Call, Operands};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::guard::guarded;
use crate::options::options;
use crate::tensor::Tensor;

/// Which elements of a row are rotated as pairs, and by which positions.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::RopeMode;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeMode {
    /// Neighbouring elements: 0 and 1, 2 and 3, ….
    Normal,
    /// Elements of the two halves of the rotated part: 0 and `n_dims / 2`, … (GPT-NeoX, Llama in its published layout).
    NeoX,
    /// As [`RopeMode::NeoX`], with four positions per token, one for each section of the pairs (Qwen-VL).
    MRope,
    /// As [`RopeMode::MRope`], but the first three positions are interleaved (Qwen3-VL).
    IMRope,
    /// Elements of the two halves of the whole row, with four positions per token, one for each section of the pairs.
    /// The frequencies restart at each section. `n_dims` is half the row length.
    Vision,
}

impl RopeMode {
    /// Whether the mode takes four positions per token (`ggml_rope_multi`).
    fn is_multi(self) -> bool {
        matches!(self, Self::MRope | Self::IMRope | Self::Vision)
    }

    pub(crate) fn raw(self) -> i32 {
        match self {
            Self::Normal => sys::GGML_ROPE_TYPE_NORMAL,
            Self::NeoX => sys::GGML_ROPE_TYPE_NEOX,
            Self::MRope => sys::GGML_ROPE_TYPE_MROPE,
            Self::IMRope => sys::GGML_ROPE_TYPE_IMROPE,
            Self::Vision => sys::GGML_ROPE_TYPE_VISION,
        }
        .cast_signed()
    }
}

options! {
    /// The options of [`Context::rope_ext`].
    ///
    /// ```
    /// use ggml::{Rope, RopeMode, prelude::*};
    /// let ctx = Context::new();
    /// let q = ctx.input("q", DType::F32, [64, 2, 5])?;
    /// let positions = ctx.input("positions", DType::I32, [5])?;
    /// assert_eq!(ctx.rope_ext(q, positions, Rope::new(64, RopeMode::NeoX).with_freq_base(1e6))?.ne(), q.ne());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct Rope<'c> {
        /// Rotates `n_dims` elements of each row, which form pairs by `mode`.
        new(n_dims: i32, mode: RopeMode);
        /// Sets the number of pairs for each of four positions per token. Sections repeat if pairs are left over, except
        /// in [`RopeMode::Vision`], where the first two must cover all.
        with_sections(sections: [i32; 4] = [0; 4]);
        /// Sets the number of elements before the rotated part (`ggml_rope_set_offset`).
        with_offset(offset: i32 = 0);
        /// Sets divisors of the frequencies, one per pair of the whole row: `[row / 2 or more]`, `f32`.
        with_freq_factors(freq_factors: Option<Tensor<'c>> = None, into);
        /// Sets the context length of the model's training, for `YaRN`.
        with_n_ctx_orig(n_ctx_orig: i32 = 0);
        /// Sets the base of the frequencies.
        with_freq_base(freq_base: f32 = 10_000.0);
        /// Sets the factor of the positions.
        with_freq_scale(freq_scale: f32 = 1.0);
        /// Sets the weight of extrapolation in the mix with interpolation (`YaRN`); 0 for none.
        with_ext_factor(ext_factor: f32 = 0.0);
        /// Sets the factor of the result.
        with_attn_factor(attn_factor: f32 = 1.0);
        /// Sets the rotations over `n_ctx_orig` at which the mix begins (`YaRN`).
        with_beta_fast(beta_fast: f32 = 32.0);
        /// Sets the rotations over `n_ctx_orig` at which the mix ends (`YaRN`).
        with_beta_slow(beta_slow: f32 = 1.0);
    }
}

type C = *mut sys::ggml_context;
type T = *mut sys::ggml_tensor;
/// The type of the C builders for one position per token.
type SingleBuilder = unsafe extern "C-unwind" fn(C, T, T, T, i32, i32, i32, f32, f32, f32, f32, f32, f32) -> T;
/// The type of the C builders for four positions per token.
type MultiBuilder = unsafe extern "C-unwind" fn(C, T, T, T, i32, *mut i32, i32, i32, f32, f32, f32, f32, f32, f32) -> T;

impl<'c> Rope<'c> {
    /// The first and the last pair for which `YaRN` mixes interpolation and extrapolation (`ggml_rope_yarn_corr_dims`).
    #[doc(alias = "ggml_rope_yarn_corr_dims")]
    pub fn yarn_corr_dims(&self) -> [f32; 2] {
        let mut dims = [0.0; 2];
        let Self { n_dims, n_ctx_orig, freq_base, beta_fast, beta_slow, .. } = *self;
        let out = dims.as_mut_ptr();
        // SAFETY: C computes with any numbers, and writes two floats to `dims`, which has two.
        unsafe { sys::ggml_rope_yarn_corr_dims(n_dims, n_ctx_orig, freq_base, beta_fast, beta_slow, out) };
        dims
    }

    fn operands(&self, a: Tensor<'c>, positions: Tensor<'c>) -> Operands<'c> {
        Operands::new(a, [Some(positions), self.freq_factors])
    }

    /// Checks the options (H13): other values make the kernel loop for ever, divide by zero, or write past the row.
    fn check(&self, call: Call<'_, '_>, row: i64) -> Result<()> {
        let n_dims = i64::from(self.n_dims);
        let even = n_dims >= 2 && n_dims % 2 == 0 && n_dims <= row;
        call.param(even, "n_dims", n_dims, format_args!("it must be even and lie in 2 to {row}"))?;
        let offset = i64::from(self.offset);
        let inside = offset >= 0 && offset % 2 == 0 && n_dims + offset <= row;
        call.param(inside, "offset", offset, format_args!("it must be even and lie in 0 to {}", row - n_dims))?;
        let all: i64 = self.sections.iter().map(|&n| i64::from(n)).sum();
        let [first, second, third, _] = self.sections;
        let sections = if self.mode.is_multi() {
            self.sections.iter().all(|&n| n >= 0) && [first, second, third] != [0; 3] && all <= row
        } else {
            self.sections == [0; 4]
        };
        call.param(
            sections,
            "sections",
            self.sections,
            format_args!(
                "in modes with four positions per token none may be negative, the first three not all 0, and their sum \
                 at most {row}; in others all must be 0"
            ),
        )?;
        if self.mode == RopeMode::Vision {
            call.param(2 * n_dims == row, "n_dims", n_dims, format_args!("in `Vision`, it must be half of {row}"))?;
            call.param(offset == 0, "offset", offset, "in `Vision`, it must be 0")?;
            // For more pairs, the CPU uses the other two sections; GPUs start over, or divide by zero.
            let two = i64::from(first) + i64::from(second);
            call.param(
                two >= n_dims,
                "sections",
                self.sections,
                format_args!("in `Vision`, the first two must cover all {n_dims} pairs"),
            )?;
        }
        call.param(self.n_ctx_orig >= 0, "n_ctx_orig", self.n_ctx_orig, "it must not be negative")?;
        let base = self.freq_base.is_finite() && self.freq_base > 0.0;
        call.param(base, "freq_base", self.freq_base, "it must be finite and positive")?;
        for (name, value) in [
            ("freq_scale", self.freq_scale),
            ("ext_factor", self.ext_factor),
            ("attn_factor", self.attn_factor),
            ("beta_fast", self.beta_fast),
            ("beta_slow", self.beta_slow),
        ] {
            call.param(value.is_finite(), name, value, "it must be finite")?;
        }
        Ok(())
    }
}

impl Context {
    /// Rotary position embedding (`ggml_rope`): `a` is `[row, heads, tokens, batch]`, `positions` is `[tokens]`, of
    /// `i32`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::RopeMode;
    /// # let ctx = Context::new();
    /// let q = ctx.input("q", DType::F32, [64, 8, 10])?; // 8 heads, 10 tokens
    /// let positions = ctx.cast(ctx.arange(0.0, 10.0, 1.0)?, DType::I32)?;
    /// assert_eq!(ctx.rope(q, positions, 64, RopeMode::NeoX)?.ne(), q.ne());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::rope_ext`].
    #[doc(alias = "ggml_rope")]
    pub fn rope<'c>(&'c self, a: Tensor<'c>, positions: Tensor<'c>, n_dims: i32, mode: RopeMode) -> Result<Tensor<'c>> {
        self.rope_ext(a, positions, Rope::new(n_dims, mode))
    }

    /// [`Context::rope`] in place (`ggml_rope_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::rope_ext_inplace`].
    #[doc(alias = "ggml_rope_inplace")]
    pub fn rope_inplace<'c>(
        &'c self,
        a: Tensor<'c>,
        positions: Tensor<'c>,
        n_dims: i32,
        mode: RopeMode,
    ) -> Result<Tensor<'c>> {
        self.rope_ext_inplace(a, positions, Rope::new(n_dims, mode))
    }

    /// [`Context::rope`] with all options (`ggml_rope_ext`, `ggml_rope_multi`).
    ///
    /// Modes with four positions per token take `[4 * tokens]`: first the first position of all tokens, then the
    /// second, ….
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32` or `f16`, the positions `i32` and the factors `f32`;
    /// [`Error::Shape`](crate::Error::Shape) unless there are a position per token (or four) and a factor per pair, and
    /// rows are contiguous and of even length; [`Error::Param`](crate::Error::Param) unless `n_dims` is even and at
    /// least 2, `offset` is even, their sum is at most the row length, the sections fit mode and row, and all other
    /// numbers are finite, with a positive `freq_base`.
    #[doc(alias = "ggml_rope_ext")]
    #[doc(alias = "ggml_rope_multi")]
    #[doc(alias = "ggml_rope_custom")]
    #[doc(alias = "ggml_rope_set_offset")]
    pub fn rope_ext<'c>(&'c self, a: Tensor<'c>, positions: Tensor<'c>, how: Rope<'c>) -> Result<Tensor<'c>> {
        check(Call { op: "rope_ext", operands: &how.operands(a, positions) }, a, positions, &how)?;
        self.rotated(sys::ggml_rope_ext, sys::ggml_rope_multi, a, positions, how)
    }

    /// [`Context::rope_ext`] in place (`ggml_rope_ext_inplace`, `ggml_rope_multi_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::rope_ext`] and [`Context::norm_inplace`]; [`Error::Shape`](crate::Error::Shape) where the factors share
    /// memory with `a`.
    #[doc(alias = "ggml_rope_ext_inplace")]
    #[doc(alias = "ggml_rope_multi_inplace")]
    #[doc(alias = "ggml_rope_custom_inplace")]
    pub fn rope_ext_inplace<'c>(&'c self, a: Tensor<'c>, positions: Tensor<'c>, how: Rope<'c>) -> Result<Tensor<'c>> {
        let operands = how.operands(a, positions);
        let call = Call { op: "rope_ext_inplace", operands: &operands };
        check(call, a, positions, &how)?;
        call.in_place(a, &[])?;
        call.apart(a, operands.get(1..).unwrap_or_default())?;
        self.rotated(sys::ggml_rope_ext_inplace, sys::ggml_rope_multi_inplace, a, positions, how)
    }

    /// The gradient of [`Context::rope_ext`] with respect to its operand, from that of its result, `grad`: the inverse
    /// rotation, with the same positions and options (`ggml_rope_ext_back`, `ggml_rope_multi_back`).
    ///
    /// # Errors
    ///
    /// As [`Context::rope_ext`].
    #[doc(alias = "ggml_rope_ext_back")]
    #[doc(alias = "ggml_rope_multi_back")]
    pub fn rope_ext_back<'c>(&'c self, grad: Tensor<'c>, positions: Tensor<'c>, how: Rope<'c>) -> Result<Tensor<'c>> {
        check(Call { op: "rope_ext_back", operands: &how.operands(grad, positions) }, grad, positions, &how)?;
        self.rotated(sys::ggml_rope_ext_back, sys::ggml_rope_multi_back, grad, positions, how)
    }

    /// Calls one of two builders; the caller has checked all operands.
    fn rotated<'c>(
        &'c self,
        one: SingleBuilder,
        multi: MultiBuilder,
        a: Tensor<'c>,
        positions: Tensor<'c>,
        how: Rope<'c>,
    ) -> Result<Tensor<'c>> {
        let factors = how.freq_factors.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let Rope { n_dims: n, mut sections, n_ctx_orig: ctx, freq_base: base, freq_scale: scale, .. } = how;
        let Rope { ext_factor: ext, attn_factor: attn, beta_fast: fast, beta_slow: slow, .. } = how;
        let (mode, operands) = (how.mode.raw(), how.operands(a, positions));
        let t = self.build("ggml_rope", &operands, |c| {
            let (a, p, four) = (a.as_ptr(), positions.as_ptr(), sections.as_mut_ptr());
            if how.mode.is_multi() {
                // SAFETY: the context is live and has room; the operands are live for 'c; `check` has checked types,
                // shapes and options (H13), and the caller that `a` may be written to if `multi` does so; C copies the
                // four sections. The result keeps the operands as sources.
                unsafe { multi(c, a, p, factors, n, four, mode, ctx, base, scale, ext, attn, fast, slow) }
            } else {
                // SAFETY: as above, for `one` and without sections.
                unsafe { one(c, a, p, factors, n, mode, ctx, base, scale, ext, attn, fast, slow) }
            }
        })?;
        if how.offset > 0 {
            // SAFETY: `t` is live and was made just now; it is a rotation in a mode that takes an offset, and the
            // rotated part ends inside the row (`Rope::check`). C changes a parameter of it and returns it.
            unsafe { guarded!(call, sys::ggml_rope_set_offset(t.as_ptr(), how.offset)) }?;
        }
        Ok(t)
    }
}

/// Checks all that the builders need, except for writing in place.
fn check(call: Call<'_, '_>, a: Tensor<'_>, positions: Tensor<'_>, how: &Rope<'_>) -> Result<()> {
    call.dtype(matches!(a.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
    call.dtype(positions.dtype() == DType::I32, "the positions (second) must be i32")?;
    let [row, _, tokens, _] = a.ne();
    let needed = if how.mode.is_multi() { tokens.checked_mul(4) } else { Some(tokens) };
    call.shape(
        needed.is_some_and(|n| positions.ne() == [n, 1, 1, 1]),
        "there must be one position for each token (third dimension), or four in modes `MRope`, `IMRope` and `Vision`",
    )?;
    call.shape(positions.is_contiguous(), "the positions must be contiguous; use `cont`")?;
    let rows = row % 2 == 0 && a.ptr().has_contiguous_rows() && i32::try_from(row).is_ok();
    call.shape(rows, "rows must be contiguous and of even length; use `cont`")?;
    how.check(call, row)?;
    if let Some(f) = how.freq_factors {
        call.dtype(f.dtype() == DType::F32, "the frequency factors (third) must be f32")?;
        // The kernel reads a factor for every pair of the row, not of `n_dims`. They must be a vector: the allocator
        // could give the result the memory of factors of its shape, which other threads still read.
        let [n, upper @ ..] = f.ne();
        let vector = f.is_contiguous() && n >= row / 2 && upper == [1; 3];
        call.shape(vector, "the frequency factors must be a contiguous vector with one for each pair of a row")?;
    }
    Ok(())
}
