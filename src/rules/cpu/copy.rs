//! Rules of the CPU for copies (`cont`, `dup`, `cpy` and `cast` share one kernel), repetitions and concatenations.

use super::prelude::*;
use crate::dtype::CType as _;

pub(super) fn repeat(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    let types = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I16];
    rows_of(a, &types, "the CPU kernel takes f32, f16, bf16, i32 or i16")
}

pub(super) fn concat(t: TensorPtr) -> Verdict {
    let [a, b] = sources(t)?;
    let by_element = if cfg!(ggml_0_28) {
        !a.dtype().is_quantized()
    } else {
        matches!(a.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I16 | DType::I8)
    };
    need(by_element || (a.has_dense_rows() && b.has_dense_rows()), ROWS)
}

const NONE: &str = "the CPU can't copy between these types";

/// Whether the first operand can be copied into `t`. `t` is the copy, or a view of the copy's target.
pub(super) fn copies(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    let (from, to) = (a.dtype(), t.dtype());
    let whole = a.is_contiguous() && t.is_contiguous();
    let [a0, ..] = a.ne();
    let [t0, ..] = t.ne();
    if from == to {
        need(!whole || countable_whole(a), "the CPU copies less than 2^31 - 2^16 contiguous elements or blocks")?;
        // Where the kernel can't copy whole rows, it copies single elements, and takes each block for one.
        let rows = a.ne() == t.ne() && a.has_dense_rows() && t.has_dense_rows();
        return need(from.block_size() == 1 || whole || rows, ROWS);
    }
    if from.is_quantized() {
        need(to == DType::F32 && has_float_rows(from), NONE)?;
        let few = u32::try_from(a.elements()).is_ok();
        need(few, "the CPU dequantises less than 2^32 elements")?;
        // The kernel finds source blocks and their targets by all strides. If the shapes differed, a block could span
        // two rows of the target.
        return need(whole || (a.ne() == t.ne() && t.has_dense_rows()), ROWS);
    }
    if to.is_quantized() {
        need(from.is_float() && can_quantise(to), NONE)?;
        // The kernel quantises rows in a buffer of the target's row length, and writes them consecutively.
        need(t.is_contiguous() && a0 == t0, "the CPU quantises into contiguous tensors of one row length only")?;
        return need(a.has_dense_rows(), ROWS);
    }
    // An 8-bit float can only be converted to and from larger floats.
    let floats = (from.is_float() && (to.is_float() || to.is_f8())) || (from.is_f8() && to.is_float());
    let integers = matches!((from, to), (DType::I32, DType::F32) | (DType::F32, DType::I32));
    need(floats || integers, NONE)
}

/// Whether the type is quantised and its rows can be converted to `f32`.
pub(super) fn has_float_rows(t: DType) -> bool {
    t.has_floats_in_blocks()
}

/// Whether rows of `f32` can be quantised to the type without an importance matrix.
pub(super) fn can_quantise(t: DType) -> bool {
    matches!(
        t,
        DType::Q4_0
            | DType::Q4_1
            | DType::Q5_0
            | DType::Q5_1
            | DType::Q8_0
            | DType::Q1_0
            | DType::Q2_0
            | DType::Q2_K
            | DType::Q3_K
            | DType::Q4_K
            | DType::Q5_K
            | DType::Q6_K
            | DType::IQ4_NL
            | DType::IQ4_XS
            | DType::MXFP4
            | DType::NVFP4
            | DType::TQ1_0
            | DType::TQ2_0
    )
}
