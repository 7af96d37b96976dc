//! Rotary position embedding.

use ggml_sys as sys;

use super::check::OperandList;
use crate::ffi::{CContext as C, CTensor as T};
use crate::op::{RopeMode, RopeOptions};
use crate::ops::prelude::*;

/// The type of C's `rope` builders for modes with one position per token.
type SingleBuilder = unsafe extern "C-unwind" fn(C, T, T, T, i32, i32, i32, f32, f32, f32, f32, f32, f32) -> T;
/// The type of C's `rope` builders for modes with four positions per token.
type MultiBuilder = unsafe extern "C-unwind" fn(C, T, T, T, i32, *mut i32, i32, i32, f32, f32, f32, f32, f32, f32) -> T;

impl<'c> RopeOptions<'c> {
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

    fn operands(&self, a: Tensor<'c>, positions: Tensor<'c>) -> OperandList<'c> {
        OperandList::new(a, [Some(positions), self.freq_factors])
    }

    /// Checks the options (H13): values that are refused would make the kernel loop for ever, divide by zero, or write
    /// past the row.
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
            // For pairs that these two sections don't cover, the CPU uses the other two; GPUs start over, or divide by
            // zero.
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
    /// use ggml::ops::RopeMode;
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
        entered!("rope");
        self.rope_ext(a, positions, RopeOptions::new(n_dims, mode))
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
        entered!("rope_inplace");
        self.rope_ext_inplace(a, positions, RopeOptions::new(n_dims, mode))
    }

    /// [`Context::rope`] with all options (`ggml_rope_ext`, `ggml_rope_multi`).
    ///
    /// Modes with four positions per token take `[4 * tokens]`: first the first position of all tokens, then the
    /// second, ….
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32` or `f16`, the positions `i32` and the factors `f32`;
    /// [`Error::Shape`](crate::Error::Shape) unless there are a position per token (or four), and a factor per pair,
    /// and rows are contiguous and of even length; [`Error::Param`](crate::Error::Param) unless `n_dims` is even and at
    /// least 2, `offset` is even, their sum is at most the row length, the sections fit mode and row, and all other
    /// numbers are finite, with a positive `freq_base`.
    #[doc(alias = "ggml_rope_ext")]
    #[doc(alias = "ggml_rope_multi")]
    #[doc(alias = "ggml_rope_custom")]
    #[doc(alias = "ggml_rope_set_offset")]
    pub fn rope_ext<'c>(&'c self, a: Tensor<'c>, positions: Tensor<'c>, how: RopeOptions<'c>) -> Result<Tensor<'c>> {
        check(Call { op: entered!("rope_ext"), operands: &how.operands(a, positions) }, a, positions, &how)?;
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
    pub fn rope_ext_inplace<'c>(
        &'c self,
        a: Tensor<'c>,
        positions: Tensor<'c>,
        how: RopeOptions<'c>,
    ) -> Result<Tensor<'c>> {
        let operands = how.operands(a, positions);
        let call = Call { op: entered!("rope_ext_inplace"), operands: &operands };
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
    pub fn rope_ext_back<'c>(
        &'c self,
        grad: Tensor<'c>,
        positions: Tensor<'c>,
        how: RopeOptions<'c>,
    ) -> Result<Tensor<'c>> {
        check(Call { op: entered!("rope_ext_back"), operands: &how.operands(grad, positions) }, grad, positions, &how)?;
        self.rotated(sys::ggml_rope_ext_back, sys::ggml_rope_multi_back, grad, positions, how)
    }

    /// Calls `one` or `multi`, a builder of C for one or four positions per token. The caller has checked all operands.
    fn rotated<'c>(
        &'c self,
        one: SingleBuilder,
        multi: MultiBuilder,
        a: Tensor<'c>,
        positions: Tensor<'c>,
        how: RopeOptions<'c>,
    ) -> Result<Tensor<'c>> {
        let factors = how.freq_factors.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let RopeOptions { n_dims: n, mut sections, n_ctx_orig: ctx, freq_base: base, freq_scale: scale, .. } = how;
        let RopeOptions { ext_factor: ext, attn_factor: attn, beta_fast: fast, beta_slow: slow, .. } = how;
        let (mode, operands) = (how.mode.raw().cast_signed(), how.operands(a, positions));
        let t = self.build("ggml_rope", &operands, |c| {
            let (a, p, four) = (a.as_ptr(), positions.as_ptr(), sections.as_mut_ptr());
            if how.mode.is_multi() {
                // SAFETY: the context is live and has room; the operands are live for 'c; `check` has checked types,
                // shapes and options (H13), and the caller has checked that `a` may be written to if `multi` does so; C
                // copies the four sections. The result keeps the operands as sources.
                unsafe { multi(c, a, p, factors, n, four, mode, ctx, base, scale, ext, attn, fast, slow) }
            } else {
                // SAFETY: the context is live and has room; the operands are live for 'c; `check` has checked types,
                // shapes and options (H13), and the caller has checked that `a` may be written to if `one` does so. The
                // result keeps the operands as sources.
                unsafe { one(c, a, p, factors, n, mode, ctx, base, scale, ext, attn, fast, slow) }
            }
        })?;
        if how.offset > 0 {
            amend!(sys::ggml_rope_set_offset(t; how.offset))?;
        }
        Ok(t)
    }
}

/// Checks all that the `rope` builders need, except for writing in place.
fn check(call: Call<'_, '_>, a: Tensor<'_>, positions: Tensor<'_>, how: &RopeOptions<'_>) -> Result<()> {
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
        // The kernel reads a factor for every pair of the row, not only for those of `n_dims`. The factors must be a
        // vector: if they had the result's shape, the allocator could give the result their memory, which other threads
        // still read.
        let [n, upper @ ..] = f.ne();
        let vector = f.is_contiguous() && n >= row / 2 && upper == [1; 3];
        call.shape(vector, "the frequency factors must be a contiguous vector with one for each pair of a row")?;
    }
    Ok(())
}
