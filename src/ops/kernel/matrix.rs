//! Products of matrices.

use ggml_sys as sys;

use super::{ROWS, Verdict, dense, is_float, need, sources};
use crate::dtype::DType;
use crate::tensor::ptr::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_MUL_MAT => sources(t).and_then(|[a, b]| mul_mat(a, b)),
        _ => return None,
    })
}

fn mul_mat(a: TensorPtr, b: TensorPtr) -> Verdict {
    has_dot_product(a)?;
    let types = match (a.dtype(), b.dtype()) {
        (_, DType::F32) | (DType::F32, DType::BF16) => true,
        (x, y) => is_float(x) && x == y,
    };
    need(types, "the CPU kernel takes a second operand of f32, of the first one's float type, or of bf16 with f32")?;
    need(dense(a) && dense(b), ROWS)
}

/// H14: some types have no dot product, and the kernel would jump to NULL.
pub(super) fn has_dot_product(a: TensorPtr) -> Verdict {
    let none =
        matches!(a.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 | DType::Q8_1 | DType::Q8K);
    need(!none, "the CPU has no dot product for the first operand's type")
}
