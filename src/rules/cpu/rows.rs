//! Rules of the CPU for functions of rows: sums, norms, softmax, masks, losses, rotary positions.

use super::prelude::*;

/// The rule for sums. Since ggml 0.28, the kernel for `f32` uses all strides.
pub(super) fn sum(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    if cfg!(ggml_0_28) && a.dtype() == DType::F32 {
        return Ok(());
    }
    rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16")
}

/// The rule for norms. Their kernels use all strides.
pub(super) fn norm(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    need(a.dtype() == DType::F32, "the CPU kernel takes f32 only")
}

/// The rule for functions of rows of `f32`.
pub(super) fn of_rows(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    only_f32(a)
}

pub(super) fn repeat_back(t: TensorPtr) -> Verdict {
    of_rows(t)?;
    // The kernel of `repeat_back` clears the result as one row.
    need(countable_whole(t), "the CPU kernel makes less than 2^31 - 2^16 elements")
}

/// The rule for functions of contiguous `f32`.
pub(super) fn contiguous(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    only_f32(a)?;
    need(a.is_contiguous(), "the CPU kernel needs a contiguous operand; use `cont`")
}

pub(super) fn diag_mask(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    only_f32(a)?;
    need(a.is_packed(), PACKED)
}

pub(super) fn top_k_mask(t: TensorPtr) -> Verdict {
    let [mask] = sources(t)?;
    rows_of(mask, &[DType::F32, DType::F16], "the CPU kernel takes masks of f32 or f16")
}

pub(super) fn cross_entropy_loss(t: TensorPtr) -> Verdict {
    let srcs: [_; 2] = sources(t)?;
    srcs.into_iter().try_for_each(|s| {
        only_f32(s)?;
        need(s.is_contiguous_1(), EVEN) // H10
    })
}

pub(super) fn count_equal(t: TensorPtr) -> Verdict {
    let srcs: [_; 2] = sources(t)?;
    need(srcs.iter().all(|s| s.dtype() == DType::I32), "the CPU kernel takes i32 only")?;
    // The kernel of `count_equal` computes the offsets of rows in higher dimensions wrongly, and reads out of bounds
    // (H61).
    let matrix = |s: TensorPtr| s.ne().iter().skip(2).all(|&n| n == 1);
    need(srcs.into_iter().all(matrix), "the CPU kernel takes vectors and matrices only; use `reshape`")
}

pub(super) fn only_f32(a: TensorPtr) -> Verdict {
    rows_of(a, &[DType::F32], "the CPU kernel takes f32 only")
}

/// The rule for `rope`. The kernel reads positions and frequency factors as if they were contiguous.
pub(super) fn rope(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
    need(t.sources().skip(1).all(TensorPtr::is_contiguous), "the CPU kernel needs contiguous positions and factors")
}
