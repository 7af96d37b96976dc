//! Rules of the CPU for rows and matrices picked by index.

use super::prelude::*;
use super::{copy, matrix, packed};
use crate::header::Owner;

pub(super) fn add_id(t: TensorPtr) -> Verdict {
    let [a, b] = sources(t)?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)
}

pub(super) fn get_rows(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    let types = matches!(a.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::I32)
        || copy::has_float_rows(a.dtype())
        || a.dtype().is_f8();
    need(types, "the CPU can't read rows of this type")?;
    need(a.has_dense_rows(), ROWS)
}

pub(super) fn get_rows_back(t: TensorPtr) -> Verdict {
    let [a, rows] = sources(t)?;
    need(a.has_dense_rows(), ROWS)?;
    // The kernel reads the row indices as if they were contiguous.
    need(rows.has_dense_rows(), "the CPU kernel needs contiguous row indices; use a contiguous view")
}

pub(super) fn set_rows(t: TensorPtr) -> Verdict {
    let [b] = sources(t)?;
    let to = t.dtype();
    let writable = to.is_float() || to.is_f8() || to == DType::I32 || copy::can_quantise(to);
    need(writable, "the CPU can't write rows of this type")?;
    // Before 0.28, the kernel's buffer for rows of f16 had room for one thread, but all threads used this buffer.
    let buffered = cfg!(ggml_0_28) || b.dtype() == DType::F32 || to == DType::F16;
    need(buffered, "before ggml 0.28, the CPU writes rows of f16 to f16 only; use `cast`")?;
    need(b.has_dense_rows() && t.has_dense_rows(), ROWS)
}

/// The most entries of the table in the kernel of `mul_mat_id`, which has an entry of 8 bytes for each expert and
/// index.
const MAX_ENTRIES: i64 = 1 << 40;

pub(super) fn mul_mat_id(t: TensorPtr) -> Verdict {
    let [a, b, ids] = sources(t)?;
    matrix::has_dot_product(a)?;
    let types = b.dtype() == DType::F32 || (a.dtype() == b.dtype() && a.dtype().is_float());
    need(types, "the CPU kernel takes rows of f32, or of the experts' float type")?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)?;
    let ([_, _, n, _], [used, tokens, ..]) = (a.ne(), ids.ne());
    let entries = n.checked_mul(used).and_then(|n| n.checked_mul(tokens));
    need(entries.is_some_and(|n| n <= MAX_ENTRIES), "the CPU kernel takes at most 2^40 experts times indices")?;
    if a.owner() == Owner::Packed { packed::mul_mat_id(a, b) } else { Ok(()) }
}
