//! Rows and matrices picked by index.

use ggml_sys as sys;

use super::{ROWS, Verdict, copy, matrix, need, packed, sources};
use crate::dtype::DType;
use crate::header::{Owner, TensorPtr};

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_GET_ROWS => sources(t).and_then(|[a]| get_rows(a)),
        sys::GGML_OP_GET_ROWS_BACK => sources(t).and_then(|[a, rows]| get_rows_back(a, rows)),
        sys::GGML_OP_SET_ROWS => sources(t).and_then(|[b]| set_rows(b, t)),
        sys::GGML_OP_MUL_MAT_ID => sources(t).and_then(|[a, b, ids]| mul_mat_id(a, b, ids)),
        sys::GGML_OP_ADD_ID => sources(t).and_then(|[a, b]| need(a.has_dense_rows() && b.has_dense_rows(), ROWS)),
        _ => return None,
    })
}

fn get_rows(a: TensorPtr) -> Verdict {
    let types = matches!(a.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::I32)
        || copy::has_float_rows(a.dtype())
        || a.dtype().is_f8();
    need(types, "the CPU can't read rows of this type")?;
    need(a.has_dense_rows(), ROWS)
}

fn get_rows_back(a: TensorPtr, rows: TensorPtr) -> Verdict {
    need(a.has_dense_rows(), ROWS)?;
    // The kernel reads the indices as contiguous.
    need(rows.has_dense_rows(), "the CPU kernel needs contiguous row indices; use a contiguous view")
}

fn set_rows(b: TensorPtr, t: TensorPtr) -> Verdict {
    let to = t.dtype();
    need(to.is_float() || to.is_f8() || copy::can_quantise(to), "the CPU can't write rows of this type")?;
    // For f16 sources, the kernel's conversion buffer has room for one thread, but all threads use it.
    need(b.dtype() == DType::F32 || to == DType::F16, "the CPU writes rows of f16 to f16 only; use `cast`")?;
    need(b.has_dense_rows() && t.has_dense_rows(), ROWS)
}

/// The most entries of the kernel's table, which has one of 8 bytes per expert and index.
const MOST_ENTRIES: i64 = 1 << 40;

fn mul_mat_id(a: TensorPtr, b: TensorPtr, ids: TensorPtr) -> Verdict {
    matrix::has_dot_product(a)?;
    let types = b.dtype() == DType::F32 || (a.dtype() == b.dtype() && a.dtype().is_float());
    need(types, "the CPU kernel takes rows of f32, or of the experts' float type")?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)?;
    let ([_, _, n, _], [used, tokens, ..]) = (a.ne(), ids.ne());
    let entries = n.checked_mul(used).and_then(|n| n.checked_mul(tokens));
    need(entries.is_some_and(|n| n <= MOST_ENTRIES), "the CPU kernel takes at most 2^40 experts times indices")?;
    if a.owner() == Owner::Packed { packed::mul_mat_id(a, b) } else { Ok(()) }
}
