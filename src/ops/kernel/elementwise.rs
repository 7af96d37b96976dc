//! Functions of each element, of one operand or of two.

use ggml_sys as sys;

use super::{EVEN, FLOATS, PACKED, Verdict, dense, is_float, is_packed, need, rows_of, sources};
use crate::dtype::DType;
use crate::tensor::ptr::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_UNARY
        | sys::GGML_OP_SQR
        | sys::GGML_OP_SQRT
        | sys::GGML_OP_LOG
        | sys::GGML_OP_SIN
        | sys::GGML_OP_COS => sources(t).and_then(|[a]| rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16")),
        sys::GGML_OP_LEAKY_RELU | sys::GGML_OP_CLAMP => sources(t).and_then(|[a]| {
            rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
            need(a.is_contiguous_1(), EVEN) // H10
        }),
        sys::GGML_OP_SCALE => sources(t).and_then(|[a]| {
            rows_of(a, &[DType::F32, DType::BF16], "the CPU kernel takes f32 or bf16")?;
            need(is_packed(a), PACKED)
        }),
        sys::GGML_OP_GLU => t.sources().try_for_each(|a| {
            rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16")?;
            need(a.is_contiguous_1(), EVEN)
        }),
        sys::GGML_OP_ADD | sys::GGML_OP_SUB | sys::GGML_OP_MUL | sys::GGML_OP_DIV => {
            sources(t).and_then(|[a, b]| binary(a, b, t))
        }
        _ => return None,
    })
}

fn binary(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Verdict {
    let types = match (a.dtype(), b.dtype()) {
        (x, y) if x == y => is_float(x),
        (DType::F16 | DType::BF16, DType::F32) => true,
        _ => false,
    };
    need(
        types && t.dtype() == a.dtype(),
        "the CPU kernel takes two operands of one float type, or f16 or bf16 with f32",
    )?;
    need(dense(a), "the CPU kernel needs the elements of the first operand's rows side by side; use `cont`")
}
