//! Rotary position embedding.

use ggml_sys as sys;

use super::check::{Call, Operands};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::guard;
use crate::tensor::Tensor;

/// Which elements of a row are rotated together, and by which positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeMode {
    /// Neighbours: 0 and 1, 2 and 3, ….
    Normal,
    /// The two halves of the rotated part (GPT-NeoX, Llama in its published layout).
    NeoX,
    /// As [`RopeMode::NeoX`], by one of four positions for each section of the pairs (Qwen-VL).
    MRope,
    /// As [`RopeMode::MRope`], the first three positions taking turns instead (Qwen3-VL).
    IMRope,
    /// The two halves of the whole row, by one of four positions for each section of the pairs, the frequencies of each
    /// section starting anew. `n_dims` is half the row's length.
    Vision,
}

impl RopeMode {
    /// Whether there are four positions for each token (`ggml_rope_multi`).
    fn is_multi(self) -> bool {
        matches!(self, Self::MRope | Self::IMRope | Self::Vision)
    }

    fn raw(self) -> i32 {
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

/// The options of a [`Context::rope_ext`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rope<'c> {
    /// How many elements of a row are rotated.
    pub n_dims: i32,
    /// Which of them together.
    pub mode: RopeMode,
    /// With four positions, how many pairs are rotated by each. They repeat where pairs are left over, but for
    /// [`RopeMode::Vision`], where the first two must be enough.
    pub sections: [i32; 4],
    /// How many elements of a row lie before those that are rotated (`ggml_rope_set_offset`).
    pub offset: i32,
    /// A divisor of the frequency of each pair, at least half the row length of them, `f32`.
    pub freq_factors: Option<Tensor<'c>>,
    /// The context length of the model's training, for `YaRN`.
    pub n_ctx_orig: i32,
    /// The base of the frequencies.
    pub freq_base: f32,
    /// A factor of the positions.
    pub freq_scale: f32,
    /// How far to mix interpolation and extrapolation (`YaRN`); 0 for none.
    pub ext_factor: f32,
    /// A factor of the result.
    pub attn_factor: f32,
    /// Where the mix begins (`YaRN`).
    pub beta_fast: f32,
    /// Where the mix ends (`YaRN`).
    pub beta_slow: f32,
}

/// The type of the builders for one position to a token.
type One = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    i32,
    i32,
    i32,
    f32,
    f32,
    f32,
    f32,
    f32,
    f32,
) -> *mut sys::ggml_tensor;

/// The type of the builders for four positions to a token.
type Multi = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    i32,
    *mut i32,
    i32,
    i32,
    f32,
    f32,
    f32,
    f32,
    f32,
    f32,
) -> *mut sys::ggml_tensor;

impl<'c> Rope<'c> {
    /// Plain rotation of the first `n_dims` elements of each row, with base 10,000.
    pub fn new(n_dims: i32, mode: RopeMode) -> Self {
        Self {
            n_dims,
            mode,
            sections: [0; 4],
            offset: 0,
            freq_factors: None,
            n_ctx_orig: 0,
            freq_base: 10_000.0,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        }
    }

    /// Between which pairs `YaRN` mixes interpolation and extrapolation (`ggml_rope_yarn_corr_dims`).
    #[doc(alias = "ggml_rope_yarn_corr_dims")]
    pub fn yarn_corr_dims(&self) -> [f32; 2] {
        let mut dims = [0.0; 2];
        // SAFETY: C computes with the numbers it is given, whatever they are, and writes two.
        unsafe {
            sys::ggml_rope_yarn_corr_dims(
                self.n_dims,
                self.n_ctx_orig,
                self.freq_base,
                self.beta_fast,
                self.beta_slow,
                dims.as_mut_ptr(),
            );
        }
        dims
    }

    fn operands(&self, a: Tensor<'c>, positions: Tensor<'c>) -> Operands<'c> {
        Operands::new(a, [Some(positions), self.freq_factors])
    }

    /// H13: other values make the kernel loop for ever, divide by zero, or write beyond the row.
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
                "with four positions to a token they must not be negative, the first three not all 0, their sum at most \
                 {row}; else they must be 0"
            ),
        )?;
        if self.mode == RopeMode::Vision {
            call.param(2 * n_dims == row, "n_dims", n_dims, format_args!("it must be half of {row} in this mode"))?;
            call.param(offset == 0, "offset", offset, "it must be 0 in this mode")?;
            // The CPU goes on to the other two, the kernels of GPUs begin anew, or divide by zero.
            let two = i64::from(first) + i64::from(second);
            call.param(
                two >= n_dims,
                "sections",
                self.sections,
                format_args!("in this mode the first two must cover all {n_dims} pairs"),
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
    /// Rotates the rows of `a` by their positions (`ggml_rope`): `a` is `[row, heads, tokens, batch]`, `positions` holds an
    /// `i32` for each token.
    ///
    /// # Errors
    ///
    /// As [`Context::rope_ext`].
    #[doc(alias = "ggml_rope")]
    pub fn rope<'c>(&'c self, a: Tensor<'c>, positions: Tensor<'c>, n_dims: i32, mode: RopeMode) -> Result<Tensor<'c>> {
        self.rope_ext(a, positions, Rope::new(n_dims, mode))
    }

    /// [`Context::rope`], written over `a` (`ggml_rope_inplace`).
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
    /// Modes of several dimensions take four positions for each token: those of all tokens in the first dimension, then
    /// those in the second, ….
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32` or `f16`, the positions `i32` and the factors `f32`;
    /// [`Error::Shape`](crate::Error::Shape) unless there is a position for each token (or four) and a factor for each pair,
    /// and rows of even length lie side by side; [`Error::Param`](crate::Error::Param) unless `n_dims` is even, at least 2
    /// and with an even `offset` at most a row's length, the sections fit the mode and the row, and the other numbers are
    /// finite, `freq_base` positive.
    #[doc(alias = "ggml_rope_ext")]
    #[doc(alias = "ggml_rope_multi")]
    #[doc(alias = "ggml_rope_custom")]
    #[doc(alias = "ggml_rope_set_offset")]
    pub fn rope_ext<'c>(&'c self, a: Tensor<'c>, positions: Tensor<'c>, how: Rope<'c>) -> Result<Tensor<'c>> {
        check(Call { op: "rope_ext", operands: &how.operands(a, positions) }, a, positions, &how)?;
        self.rotated(sys::ggml_rope_ext, sys::ggml_rope_multi, a, positions, how)
    }

    /// [`Context::rope_ext`], written over `a` (`ggml_rope_ext_inplace`, `ggml_rope_multi_inplace`).
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

    /// The gradient of a [`Context::rope_ext`] with the same positions and options with respect to its operand, from that
    /// with respect to its result, `grad` (`ggml_rope_ext_back`, `ggml_rope_multi_back`): the rotation back.
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

    /// Calls one of two builders, when all is checked.
    fn rotated<'c>(
        &'c self,
        one: One,
        multi: Multi,
        a: Tensor<'c>,
        positions: Tensor<'c>,
        how: Rope<'c>,
    ) -> Result<Tensor<'c>> {
        let factors = how.freq_factors.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let mut sections = how.sections;
        let t = self.build("ggml_rope", &how.operands(a, positions), |c| {
            if how.mode.is_multi() {
                // SAFETY: the context is live and has room; the operands are live for 'c and fit, which `check` saw to, and
                // `a` may be written to if `multi` does so; C copies the four sections. The result keeps the operands as
                // sources.
                unsafe {
                    multi(
                        c,
                        a.as_ptr(),
                        positions.as_ptr(),
                        factors,
                        how.n_dims,
                        sections.as_mut_ptr(),
                        how.mode.raw(),
                        how.n_ctx_orig,
                        how.freq_base,
                        how.freq_scale,
                        how.ext_factor,
                        how.attn_factor,
                        how.beta_fast,
                        how.beta_slow,
                    )
                }
            } else {
                // SAFETY: as above, without sections.
                unsafe {
                    one(
                        c,
                        a.as_ptr(),
                        positions.as_ptr(),
                        factors,
                        how.n_dims,
                        how.mode.raw(),
                        how.n_ctx_orig,
                        how.freq_base,
                        how.freq_scale,
                        how.ext_factor,
                        how.attn_factor,
                        how.beta_fast,
                        how.beta_slow,
                    )
                }
            }
        })?;
        if how.offset > 0 {
            guard::call("ggml_rope_set_offset", || {
                // SAFETY: `t` was made just now and nobody else has it; it is a rotation in a mode that has an offset, which
                // leaves the rotated part inside the row. C changes a parameter of it and returns it.
                unsafe { sys::ggml_rope_set_offset(t.as_ptr(), how.offset) }
            })?;
        }
        Ok(t)
    }
}

/// All that the builders need, but for writing in place.
fn check(call: Call<'_, '_>, a: Tensor<'_>, positions: Tensor<'_>, how: &Rope<'_>) -> Result<()> {
    call.dtype(matches!(a.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
    call.dtype(positions.dtype() == DType::I32, "the positions (second) must be i32")?;
    let [row, _, tokens, _] = a.ne();
    let needed = if how.mode.is_multi() { tokens.checked_mul(4) } else { Some(tokens) };
    call.shape(
        needed.is_some_and(|n| positions.ne() == [n, 1, 1, 1]),
        "there must be one position for each token (third dimension), or four in a mode of several dimensions",
    )?;
    call.shape(positions.is_contiguous(), "the positions must be contiguous")?;
    let rows = row % 2 == 0 && a.ptr().has_contiguous_rows() && i32::try_from(row).is_ok();
    call.shape(rows, "rows must be of even length, their elements side by side; use `cont`")?;
    how.check(call, row)?;
    if let Some(f) = how.freq_factors {
        call.dtype(f.dtype() == DType::F32, "the frequency factors (third) must be f32")?;
        // The kernel reads one for every pair of the row, not of `n_dims`. A vector: what has the operand's shape could lend
        // the result its memory, and be overwritten while other threads read it.
        let [n, upper @ ..] = f.ne();
        let vector = f.is_contiguous() && n >= row / 2 && upper == [1; 3];
        call.shape(vector, "there must be a frequency factor for each pair of a row, in a vector")?;
    }
    Ok(())
}
