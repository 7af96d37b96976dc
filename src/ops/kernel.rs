//! What ggml's CPU kernels accept. The CPU device claims to support nearly everything and aborts inside the kernel, on a
//! worker thread, where nothing can catch it; so this table decides.

use std::ffi::CStr;

use ggml_sys as sys;

use super::check::is_float;
use crate::dtype::DType;
use crate::tensor::ptr::TensorPtr;

/// Whether the CPU has a kernel for the operation `t`, or what is missing.
pub(crate) fn cpu_accepts(t: TensorPtr) -> Result<(), &'static str> {
    let mut srcs = t.sources();
    let (a, b) = (srcs.next(), srcs.next());
    match (t.op(), a, b) {
        (
            sys::GGML_OP_NONE
            | sys::GGML_OP_RESHAPE
            | sys::GGML_OP_VIEW
            | sys::GGML_OP_PERMUTE
            | sys::GGML_OP_TRANSPOSE,
            ..,
        ) => Ok(()),
        (
            sys::GGML_OP_UNARY
            | sys::GGML_OP_SQR
            | sys::GGML_OP_SQRT
            | sys::GGML_OP_LOG
            | sys::GGML_OP_SIN
            | sys::GGML_OP_COS,
            Some(a),
            _,
        ) => unary(a, t),
        (sys::GGML_OP_LEAKY_RELU | sys::GGML_OP_CLAMP, Some(a), _) => {
            need(matches!(a.dtype(), DType::F32 | DType::F16), "the CPU kernel takes f32 or f16")
        }
        (sys::GGML_OP_SCALE, Some(a), _) => only_f32(&[a]),
        (sys::GGML_OP_ADD | sys::GGML_OP_SUB | sys::GGML_OP_MUL | sys::GGML_OP_DIV, Some(a), Some(b)) => {
            binary(a, b, t)
        }
        (sys::GGML_OP_MUL_MAT, Some(a), Some(b)) => mul_mat(a, b),
        (sys::GGML_OP_IM2COL, Some(_), Some(b)) => im2col(b, t),
        (sys::GGML_OP_POOL_2D, Some(a), _) => pool(a),
        (sys::GGML_OP_CROSS_ENTROPY_LOSS, Some(a), Some(b)) => only_f32(&[a, b]),
        (sys::GGML_OP_CONT | sys::GGML_OP_DUP | sys::GGML_OP_CPY, Some(a), _) => copy(a, t),
        _ => Err("this crate knows no CPU kernel for the operation"),
    }
}

/// ggml's name of an operation.
pub(crate) fn op_name(t: TensorPtr) -> String {
    // SAFETY: the tensor is live; C reads its operation and returns a constant string.
    let text = unsafe { sys::ggml_op_desc(t.as_ptr()) };
    // SAFETY: a constant C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().to_lowercase()
}

fn need(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn only_f32(srcs: &[TensorPtr]) -> Result<(), &'static str> {
    need(srcs.iter().all(|t| t.dtype() == DType::F32), "the CPU kernel takes f32 only")
}

fn unary(a: TensorPtr, t: TensorPtr) -> Result<(), &'static str> {
    need(is_float(a.dtype()) && a.dtype() == t.dtype(), "the CPU kernel takes f32, f16 or bf16")?;
    need(a.has_contiguous_rows(), "the CPU kernel needs the elements of a row side by side")
}

fn binary(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Result<(), &'static str> {
    let types = match (a.dtype(), b.dtype()) {
        (x, y) if x == y => is_float(x),
        (DType::F16 | DType::BF16, DType::F32) => true,
        _ => false,
    };
    need(
        types && t.dtype() == a.dtype(),
        "the CPU kernel takes two operands of one float type, or f16 or bf16 with f32",
    )?;
    need(a.has_contiguous_rows(), "the CPU kernel needs the elements of the first operand's rows side by side")
}

fn mul_mat(a: TensorPtr, b: TensorPtr) -> Result<(), &'static str> {
    // H14: these have no dot product, and the kernel would jump to NULL.
    let none =
        matches!(a.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 | DType::Q8_1 | DType::Q8K);
    need(!none, "the CPU has no dot product for the first operand's type")?;
    let same = matches!(a.dtype(), DType::F16 | DType::BF16) && b.dtype() == a.dtype();
    need(b.dtype() == DType::F32 || same, "the CPU kernel takes a second operand of f32, or of the first one's type")?;
    let rows = a.has_contiguous_rows() && b.has_contiguous_rows();
    need(rows, "the CPU kernel needs the elements of each row side by side")
}

fn im2col(image: TensorPtr, t: TensorPtr) -> Result<(), &'static str> {
    let types = matches!((image.dtype(), t.dtype()), (DType::F32, DType::F32 | DType::F16) | (DType::F16, DType::F16));
    need(types, "the CPU kernel takes an image of f32, or f16 for a result of f16")
}

fn pool(a: TensorPtr) -> Result<(), &'static str> {
    need(matches!(a.dtype(), DType::F32 | DType::F16), "the CPU kernel takes f32 or f16")?;
    need(a.is_contiguous(), "the CPU kernel needs a contiguous operand")
}

fn copy(a: TensorPtr, t: TensorPtr) -> Result<(), &'static str> {
    let (from, to) = (a.dtype(), t.dtype());
    need(from == to || (is_float(from) && is_float(to)), "the CPU can't copy between these types")
}
