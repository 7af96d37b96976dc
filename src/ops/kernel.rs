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
        (
            sys::GGML_OP_SOFT_MAX
            | sys::GGML_OP_SUM_ROWS
            | sys::GGML_OP_MEAN
            | sys::GGML_OP_ARGMAX
            | sys::GGML_OP_NORM
            | sys::GGML_OP_RMS_NORM
            | sys::GGML_OP_L2_NORM
            | sys::GGML_OP_GROUP_NORM,
            Some(a),
            _,
        ) => f32_rows(a),
        (sys::GGML_OP_SUM, Some(a), _) => unary(a, a),
        (sys::GGML_OP_GET_ROWS, Some(a), _) => get_rows(a),
        (sys::GGML_OP_ROPE | sys::GGML_OP_GLU, Some(a), _) => f32_or_f16_rows(a),
        (sys::GGML_OP_REPEAT, Some(a), _) => repeat(a),
        (sys::GGML_OP_CONCAT, Some(a), Some(b)) => concat(a, b),
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

const ROWS: &str = "the CPU kernel needs the elements of each row side by side";

fn need(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn only_f32(srcs: &[TensorPtr]) -> Result<(), &'static str> {
    need(srcs.iter().all(|t| t.dtype() == DType::F32), "the CPU kernel takes f32 only")
}

fn unary(a: TensorPtr, t: TensorPtr) -> Result<(), &'static str> {
    need(is_float(a.dtype()) && a.dtype() == t.dtype(), "the CPU kernel takes f32, f16 or bf16")?;
    need(a.has_contiguous_rows(), ROWS)
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
    need(rows, ROWS)
}

fn im2col(image: TensorPtr, t: TensorPtr) -> Result<(), &'static str> {
    let types = matches!((image.dtype(), t.dtype()), (DType::F32, DType::F32 | DType::F16) | (DType::F16, DType::F16));
    need(types, "the CPU kernel takes an image of f32, or f16 for a result of f16")
}

fn pool(a: TensorPtr) -> Result<(), &'static str> {
    need(matches!(a.dtype(), DType::F32 | DType::F16), "the CPU kernel takes f32 or f16")?;
    need(a.is_contiguous(), "the CPU kernel needs a contiguous operand")
}

fn f32_rows(a: TensorPtr) -> Result<(), &'static str> {
    only_f32(&[a])?;
    need(a.has_contiguous_rows(), ROWS)
}

fn f32_or_f16_rows(a: TensorPtr) -> Result<(), &'static str> {
    need(matches!(a.dtype(), DType::F32 | DType::F16), "the CPU kernel takes f32 or f16")?;
    need(a.has_contiguous_rows(), ROWS)
}

fn get_rows(a: TensorPtr) -> Result<(), &'static str> {
    let none = matches!(a.dtype(), DType::I8 | DType::I16 | DType::I64 | DType::F64 | DType::Q8_1 | DType::Q8K);
    need(!none, "the CPU can't read rows of this type")?;
    need(a.has_contiguous_rows(), ROWS)
}

fn repeat(a: TensorPtr) -> Result<(), &'static str> {
    let types = matches!(a.dtype(), DType::F32 | DType::I32 | DType::F16 | DType::BF16 | DType::I16);
    need(types, "the CPU kernel takes f32, f16, bf16, i32 or i16")?;
    need(a.has_contiguous_rows(), ROWS)
}

fn concat(a: TensorPtr, b: TensorPtr) -> Result<(), &'static str> {
    need(a.dtype().block_size() == 1, "the CPU kernel takes no block types")?;
    need(a.has_contiguous_rows() && b.has_contiguous_rows(), ROWS)
}

/// Copies. `t` is the copy itself, or a view of what is copied to.
fn copy(a: TensorPtr, t: TensorPtr) -> Result<(), &'static str> {
    const NONE: &str = "the CPU can't copy between these types";
    let (from, to) = (a.dtype(), t.dtype());
    let whole = a.is_contiguous() && t.is_contiguous();
    if from == to {
        // The kernel takes a block for one element where it can't copy rows.
        let rows = a.ne() == t.ne() && a.has_contiguous_rows() && t.has_contiguous_rows();
        return need(from.block_size() == 1 || whole || rows, "the CPU needs the blocks of each row side by side");
    }
    if from.is_quantized() {
        // The kernel counts elements in 32 bits.
        let few = u32::try_from(a.elements()).is_ok();
        need(to == DType::F32 && has_float_rows(from), NONE)?;
        return need(whole && few, "the CPU dequantises contiguous tensors of less than 2^32 elements only");
    }
    if to.is_quantized() {
        need(is_float(from) && can_quantise(to), NONE)?;
        return need(whole, "the CPU quantises contiguous tensors only");
    }
    let ints = matches!((from, to), (DType::F32, DType::I32) | (DType::I32, DType::F32));
    need(ints || (is_float(from) && is_float(to)), NONE)
}

/// Whether rows of the type can be turned into `f32`.
fn has_float_rows(t: DType) -> bool {
    !matches!(t, DType::Q8_1 | DType::Q8K)
}

/// Whether rows of `f32` can be turned into the type without more than the rows.
fn can_quantise(t: DType) -> bool {
    matches!(
        t,
        DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 | DType::Q4K | DType::Q5K | DType::Q6K
    )
}
