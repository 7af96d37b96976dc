//! Copies (`cont`, `dup`, `cpy` and `cast` share one kernel), repetitions and concatenations.

use ggml_sys as sys;

use super::{ROWS, Verdict, countable_whole, need, rows_of, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_CONT | sys::GGML_OP_DUP | sys::GGML_OP_CPY => sources(t).and_then(|[a]| copies(a, t)),
        sys::GGML_OP_REPEAT => sources(t).and_then(|[a]| {
            let types = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I16];
            rows_of(a, &types, "the CPU kernel takes f32, f16, bf16, i32 or i16")
        }),
        sys::GGML_OP_CONCAT => sources(t).and_then(|[a, b]| concat(a, b)),
        _ => return None,
    })
}

fn concat(a: TensorPtr, b: TensorPtr) -> Verdict {
    let by_element = matches!(a.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I16 | DType::I8);
    need(by_element || (a.has_dense_rows() && b.has_dense_rows()), ROWS)
}

const NONE: &str = "the CPU can't copy between these types";

/// Whether `a` can be copied into `t`, which is the copy, or a view of the copy's target.
fn copies(a: TensorPtr, t: TensorPtr) -> Verdict {
    let (from, to) = (a.dtype(), t.dtype());
    let whole = a.is_contiguous() && t.is_contiguous();
    let [a0, ..] = a.ne();
    let [t0, ..] = t.ne();
    if from == to {
        need(!whole || countable_whole(a), "the CPU copies less than 2^31 - 2^16 contiguous elements or blocks")?;
        // Where it can't copy whole rows, the kernel takes a block for one element.
        let rows = a.ne() == t.ne() && a.has_dense_rows() && t.has_dense_rows();
        return need(from.block_size() == 1 || whole || rows, ROWS);
    }
    if from.is_quantized() {
        need(to == DType::F32 && has_float_rows(from), NONE)?;
        let few = u32::try_from(a.elements()).is_ok();
        need(few, "the CPU dequantises less than 2^32 elements")?;
        // The kernel finds blocks and their targets by all strides; with other shapes, a block could span two rows.
        return need(whole || (a.ne() == t.ne() && t.has_dense_rows()), ROWS);
    }
    if to.is_quantized() {
        need(from.is_float() && can_quantise(to), NONE)?;
        // The kernel quantises rows in a buffer of the target's row length, and writes them consecutively.
        need(t.is_contiguous() && a0 == t0, "the CPU quantises into contiguous tensors of one row length only")?;
        return need(a.has_dense_rows(), ROWS);
    }
    // There is no way from the 8-bit float but to the larger ones.
    let floats = (from.is_float() && (to.is_float() || to.is_f8())) || (from.is_f8() && to.is_float());
    need(floats || (from == DType::I32 && to == DType::F32), NONE)
}

/// Whether the type is quantised, and rows of it can be converted to `f32`.
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
            | DType::Q2_K
            | DType::Q3_K
            | DType::Q4_K
            | DType::Q5_K
            | DType::Q6_K
            | DType::IQ4_NL
    )
}
