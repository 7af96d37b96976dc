//! Rotary position embedding.

use ggml_sys as sys;

use super::check::{Call, Operands};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Which elements of a row are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeMode {
    /// Neighbours: 0 and 1, 2 and 3, ….
    Normal,
    /// The two halves of the rotated part (GPT-NeoX, Llama in its published layout).
    NeoX,
}

/// The options of a [`Context::rope_ext`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rope<'c> {
    /// How many elements of a row are rotated.
    pub n_dims: i32,
    /// Which of them together.
    pub mode: RopeMode,
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

impl Rope<'_> {
    /// Plain rotation of the first `n_dims` elements of each row, with base 10,000.
    pub fn new(n_dims: i32, mode: RopeMode) -> Self {
        Self {
            n_dims,
            mode,
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

    /// [`Context::rope`] with all options (`ggml_rope_ext`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32` or `f16`, the positions `i32` and the factors `f32`;
    /// [`Error::Shape`](crate::Error::Shape) unless there is a position for each token and a factor for each pair, and rows
    /// of even length lie side by side; [`Error::Param`](crate::Error::Param) unless `n_dims` is even, at least 2 and at
    /// most a row's length, and the other numbers are finite, `freq_base` positive.
    #[doc(alias = "ggml_rope_ext")]
    pub fn rope_ext<'c>(&'c self, a: Tensor<'c>, positions: Tensor<'c>, how: Rope<'c>) -> Result<Tensor<'c>> {
        let operands = Operands::new(a, [Some(positions), how.freq_factors]);
        let call = Call { op: "rope_ext", operands: &operands };
        call.dtype(matches!(a.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
        call.dtype(positions.dtype() == DType::I32, "the positions (second) must be i32")?;
        let [row, _, tokens, _] = a.ne();
        call.shape(positions.ne() == [tokens, 1, 1, 1], "there must be one position for each token (third dimension)")?;
        call.shape(positions.is_contiguous(), "the positions must be contiguous")?;
        let rows = row % 2 == 0 && a.ptr().has_contiguous_rows() && i32::try_from(row).is_ok();
        call.shape(rows, "rows must be of even length, their elements side by side; use `cont`")?;
        // H13: other values make the kernel loop for ever or write beyond the row.
        let n_dims = how.n_dims >= 2 && how.n_dims % 2 == 0 && i64::from(how.n_dims) <= row;
        call.param(n_dims, "n_dims", how.n_dims, format_args!("it must be even and lie in 2 to {row}"))?;
        call.param(how.n_ctx_orig >= 0, "n_ctx_orig", how.n_ctx_orig, "it must not be negative")?;
        let base = how.freq_base.is_finite() && how.freq_base > 0.0;
        call.param(base, "freq_base", how.freq_base, "it must be finite and positive")?;
        for (name, value) in [
            ("freq_scale", how.freq_scale),
            ("ext_factor", how.ext_factor),
            ("attn_factor", how.attn_factor),
            ("beta_fast", how.beta_fast),
            ("beta_slow", how.beta_slow),
        ] {
            call.param(value.is_finite(), name, value, "it must be finite")?;
        }
        if let Some(f) = how.freq_factors {
            call.dtype(f.dtype() == DType::F32, "the frequency factors (third) must be f32")?;
            // The kernel reads one for every pair of the row, not of `n_dims`.
            let [n, ..] = f.ne();
            call.shape(f.is_contiguous() && n >= row / 2, "there must be a frequency factor for each pair of a row")?;
        }
        let factors = how.freq_factors.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let mode = match how.mode {
            RopeMode::Normal => sys::GGML_ROPE_TYPE_NORMAL,
            RopeMode::NeoX => sys::GGML_ROPE_TYPE_NEOX,
        };
        self.build("ggml_rope_ext", &operands, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps them as sources.
            unsafe {
                sys::ggml_rope_ext(
                    c,
                    a.as_ptr(),
                    positions.as_ptr(),
                    factors,
                    how.n_dims,
                    mode.cast_signed(),
                    how.n_ctx_orig,
                    how.freq_base,
                    how.freq_scale,
                    how.ext_factor,
                    how.attn_factor,
                    how.beta_fast,
                    how.beta_slow,
                )
            }
        })
    }
}
