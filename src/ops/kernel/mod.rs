//! What ggml's CPU kernels accept. The CPU device claims to support nearly everything and aborts inside the kernel, on a
//! worker thread, where nothing can catch it, or reads beyond a tensor; so this table decides.
//!
//! Three questions about strides come up again and again, and ggml's own predicates answer them too kindly, because they
//! skip the strides of dimensions of 1: whether the elements of a row lie side by side ([`dense`]), whether row `i` lies
//! at `i` times the second stride (`is_contiguous_1`), and whether all strides are those of a new tensor ([`is_packed`]).

mod backward;
mod copy;

use std::ffi::CStr;

use ggml_sys as sys;

use super::check::{is_float, is_packed};
use crate::dtype::DType;
use crate::tensor::ptr::TensorPtr;

type Verdict = Result<(), &'static str>;

/// Whether the CPU has a kernel for the operation `t`, or what is missing.
pub(crate) fn cpu_accepts(t: TensorPtr) -> Verdict {
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
        (op, Some(a), b) => {
            countable(t)?;
            b.map_or_else(|| with_one(op, a, t), |b| with_two(op, a, b, t).unwrap_or_else(|| with_one(op, a, t)))
        }
        _ => UNKNOWN,
    }
}

const UNKNOWN: Verdict = Err("this crate knows no CPU kernel for the operation");

/// Operations in which the first source decides.
fn with_one(op: sys::ggml_op, a: TensorPtr, t: TensorPtr) -> Verdict {
    match op {
        sys::GGML_OP_UNARY
        | sys::GGML_OP_SQR
        | sys::GGML_OP_SQRT
        | sys::GGML_OP_LOG
        | sys::GGML_OP_SIN
        | sys::GGML_OP_COS
        | sys::GGML_OP_SUM => rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16"),
        sys::GGML_OP_LEAKY_RELU | sys::GGML_OP_CLAMP => {
            rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
            need(a.is_contiguous_1(), EVEN) // H10
        }
        sys::GGML_OP_SCALE => {
            rows_of(a, &[DType::F32, DType::BF16], "the CPU kernel takes f32 or bf16")?;
            need(is_packed(a), PACKED)
        }
        sys::GGML_OP_GLU => {
            rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16")?;
            need(a.is_contiguous_1(), EVEN)
        }
        sys::GGML_OP_SUM_ROWS
        | sys::GGML_OP_MEAN
        | sys::GGML_OP_ARGMAX
        | sys::GGML_OP_NORM
        | sys::GGML_OP_RMS_NORM
        | sys::GGML_OP_L2_NORM
        | sys::GGML_OP_GROUP_NORM => rows_of(a, &[DType::F32], "the CPU kernel takes f32 only"),
        sys::GGML_OP_REPEAT_BACK => {
            rows_of(a, &[DType::F32], "the CPU kernel takes f32 only")?;
            // It clears the result as one row.
            need(countable_whole(t), "the CPU kernel folds to less than 2^31 - 2^16 elements")
        }
        sys::GGML_OP_SOFT_MAX => {
            rows_of(a, &[DType::F32], "the CPU kernel takes f32 only")?;
            need(a.is_contiguous(), "the CPU kernel needs a contiguous operand")
        }
        sys::GGML_OP_DIAG_MASK_INF => {
            rows_of(a, &[DType::F32], "the CPU kernel takes f32 only")?;
            need(is_packed(a), PACKED)
        }
        sys::GGML_OP_POOL_2D => {
            rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
            // It walks by the third stride until the end of the memory (H11).
            need(is_packed(a), PACKED)
        }
        sys::GGML_OP_REPEAT => {
            let types = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I16];
            rows_of(a, &types, "the CPU kernel takes f32, f16, bf16, i32 or i16")
        }
        sys::GGML_OP_CONT | sys::GGML_OP_DUP | sys::GGML_OP_CPY => copy::accepts(a, t),
        _ => backward::accepts(t),
    }
}

/// Operations in which both sources decide, or `None` for others.
fn with_two(op: sys::ggml_op, a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Option<Verdict> {
    Some(match op {
        sys::GGML_OP_ADD | sys::GGML_OP_SUB | sys::GGML_OP_MUL | sys::GGML_OP_DIV => binary(a, b, t),
        sys::GGML_OP_MUL_MAT => mul_mat(a, b),
        sys::GGML_OP_IM2COL => im2col(b, t),
        sys::GGML_OP_GET_ROWS => get_rows(a),
        sys::GGML_OP_ROPE => rope(a, t),
        sys::GGML_OP_CONCAT => concat(a, b),
        sys::GGML_OP_GLU => with_one(op, a, t).and_then(|()| with_one(op, b, t)),
        sys::GGML_OP_CROSS_ENTROPY_LOSS => [a, b].into_iter().try_for_each(|s| {
            rows_of(s, &[DType::F32], "the CPU kernel takes f32 only")?;
            need(s.is_contiguous_1(), EVEN) // H10
        }),
        _ => return None,
    })
}

/// ggml's name of an operation.
pub(crate) fn op_name(t: TensorPtr) -> String {
    // SAFETY: the tensor is live; C reads its operation and returns a constant string.
    let text = unsafe { sys::ggml_op_desc(t.as_ptr()) };
    // SAFETY: a constant C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().to_lowercase()
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const ROWS: &str = "the CPU kernel needs the elements of each row side by side; use `cont`";
const EVEN: &str = "the CPU kernel needs all rows equally far apart; use `cont`";
const PACKED: &str = "the CPU kernel needs an operand with the strides of a new tensor; use `cont`";

fn need(holds: bool, otherwise: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// Whether the elements (blocks) of a row lie side by side. Kernels assert so of rows of one element, too.
fn dense(t: TensorPtr) -> bool {
    let [nb0, ..] = t.nb();
    nb0 == t.dtype().type_size()
}

fn rows_of(t: TensorPtr, types: &[DType], otherwise: &'static str) -> Verdict {
    need(types.contains(&t.dtype()), otherwise)?;
    need(dense(t), ROWS)
}

/// Kernels count the elements of a row and the rows in 32 bits, and add to that the width of a vector or the number of
/// threads.
const MOST: i64 = (1 << 31) - (1 << 16);

fn countable(t: TensorPtr) -> Verdict {
    let fits = |t: TensorPtr| {
        let [n0, n1, n2, n3] = t.ne();
        let rows = n1.checked_mul(n2).and_then(|n| n.checked_mul(n3));
        [Some(n0), rows].iter().all(|n| n.is_some_and(|n| n < MOST))
    };
    need(t.sources().chain([t]).all(fits), "the CPU kernels take less than 2^31 - 2^16 rows, or elements of a row")
}

/// Whether a kernel can count all elements (blocks) of a tensor as if they were one row.
fn countable_whole(t: TensorPtr) -> bool {
    let [n0, n1, n2, n3] = t.ne();
    let count = [n1, n2, n3].into_iter().try_fold(n0 / t.dtype().block_size(), i64::checked_mul);
    count.is_some_and(|n| n < MOST)
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

fn mul_mat(a: TensorPtr, b: TensorPtr) -> Verdict {
    // H14: these have no dot product, and the kernel would jump to NULL.
    let none =
        matches!(a.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 | DType::Q8_1 | DType::Q8K);
    need(!none, "the CPU has no dot product for the first operand's type")?;
    let types = match (a.dtype(), b.dtype()) {
        (_, DType::F32) | (DType::F32, DType::BF16) => true,
        (x, y) => is_float(x) && x == y,
    };
    need(types, "the CPU kernel takes a second operand of f32, of the first one's float type, or of bf16 with f32")?;
    need(dense(a) && dense(b), ROWS)
}

fn im2col(image: TensorPtr, t: TensorPtr) -> Verdict {
    let types = matches!((image.dtype(), t.dtype()), (DType::F32, DType::F32 | DType::F16) | (DType::F16, DType::F16));
    need(types, "the CPU kernel takes an image of f32, or f16 for a result of f16")?;
    need(dense(image), ROWS)
}

fn get_rows(a: TensorPtr) -> Verdict {
    let types =
        matches!(a.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::I32) || copy::has_float_rows(a.dtype());
    need(types, "the CPU can't read rows of this type")?;
    need(dense(a), ROWS)
}

/// Positions and factors are read as lying side by side.
fn rope(a: TensorPtr, t: TensorPtr) -> Verdict {
    rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
    need(t.sources().skip(1).all(TensorPtr::is_contiguous), "the CPU kernel needs contiguous positions and factors")
}

fn concat(a: TensorPtr, b: TensorPtr) -> Verdict {
    let by_element = matches!(a.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I16 | DType::I8);
    need(by_element || (dense(a) && dense(b)), ROWS)
}
