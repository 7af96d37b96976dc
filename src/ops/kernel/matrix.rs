//! Products of matrices, and rows picked from them.

use ggml_sys as sys;

use super::{ROWS, Verdict, copy, dense, is_float, need, sources};
use crate::dtype::DType;
use crate::tensor::ptr::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_MUL_MAT => sources(t).and_then(|[a, b]| mul_mat(a, b)),
        sys::GGML_OP_GET_ROWS => sources(t).and_then(|[a]| get_rows(a)),
        _ => return None,
    })
}

fn mul_mat(a: TensorPtr, b: TensorPtr) -> Verdict {
    need(has_dot(a.dtype()), "the CPU has no dot product for the first operand's type")?;
    let types = match (a.dtype(), b.dtype()) {
        (_, DType::F32) | (DType::F32, DType::BF16) => true,
        (x, y) => is_float(x) && x == y,
    };
    need(types, "the CPU kernel takes a second operand of f32, of the first one's float type, or of bf16 with f32")?;
    need(dense(a) && dense(b), ROWS)
}

/// Whether rows of the type can be multiplied. Without a dot product, kernels jump to NULL (H14).
pub(super) fn has_dot(t: DType) -> bool {
    !matches!(t, DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 | DType::Q8_1 | DType::Q8K)
}

fn get_rows(a: TensorPtr) -> Verdict {
    let types =
        matches!(a.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::I32) || copy::has_float_rows(a.dtype());
    need(types, "the CPU can't read rows of this type")?;
    need(dense(a), ROWS)
}
