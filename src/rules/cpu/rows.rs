//! Functions of rows: sums, norms, softmax, losses, rotary positions.

use ggml_sys as sys;

use super::{EVEN, FLOATS, Verdict, countable_whole, need, rows_of, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_SUM => sources(t).and_then(|[a]| rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16")),
        sys::GGML_OP_SUM_ROWS
        | sys::GGML_OP_MEAN
        | sys::GGML_OP_ARGMAX
        | sys::GGML_OP_CUMSUM
        | sys::GGML_OP_NORM
        | sys::GGML_OP_RMS_NORM
        | sys::GGML_OP_L2_NORM
        | sys::GGML_OP_GROUP_NORM => sources(t).and_then(|[a]| only_f32(a)),
        sys::GGML_OP_REPEAT_BACK => sources(t).and_then(|[a]| {
            only_f32(a)?;
            // The kernel clears the result as one row.
            need(countable_whole(t), "the CPU kernel makes less than 2^31 - 2^16 elements")
        }),
        sys::GGML_OP_SOFT_MAX => sources(t).and_then(|[a]| {
            only_f32(a)?;
            need(a.is_contiguous(), "the CPU kernel needs a contiguous operand; use `cont`")
        }),
        sys::GGML_OP_CROSS_ENTROPY_LOSS => sources(t).and_then(|srcs: [_; 2]| {
            srcs.into_iter().try_for_each(|s| {
                only_f32(s)?;
                need(s.is_contiguous_1(), EVEN) // H10
            })
        }),
        sys::GGML_OP_COUNT_EQUAL => sources(t).and_then(|srcs: [_; 2]| {
            need(srcs.iter().all(|s| s.dtype() == DType::I32), "the CPU kernel takes i32 only")?;
            // The kernel computes the offsets of rows in higher dimensions wrongly, and reads out of bounds (H61).
            let matrix = |s: TensorPtr| s.ne().iter().skip(2).all(|&n| n == 1);
            need(srcs.into_iter().all(matrix), "the CPU kernel takes vectors and matrices only; use `reshape`")
        }),
        sys::GGML_OP_ROPE | sys::GGML_OP_ROPE_BACK => sources(t).and_then(|[a]| rope(a, t)),
        _ => return None,
    })
}

pub(super) fn only_f32(a: TensorPtr) -> Verdict {
    rows_of(a, &[DType::F32], "the CPU kernel takes f32 only")
}

/// The kernel reads positions and frequency factors as contiguous.
fn rope(a: TensorPtr, t: TensorPtr) -> Verdict {
    rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
    need(t.sources().skip(1).all(TensorPtr::is_contiguous), "the CPU kernel needs contiguous positions and factors")
}
