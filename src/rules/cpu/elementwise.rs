//! Element-wise functions of one or two operands.

use ggml_sys as sys;

use super::{EVEN, FLOATS, PACKED, ROWS, Verdict, copy, need, rows_of, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_UNARY
        | sys::GGML_OP_SQR
        | sys::GGML_OP_SQRT
        | sys::GGML_OP_LOG
        | sys::GGML_OP_SIN
        | sys::GGML_OP_COS => sources(t).and_then(|[a]| {
            rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16")?;
            let [function, ..] = t.op_params();
            let parameters = t.op() == sys::GGML_OP_UNARY && function.cast_unsigned() == sys::GGML_UNARY_OP_XIELU;
            need(!parameters || a.is_contiguous_1(), EVEN)
        }),
        sys::GGML_OP_LEAKY_RELU | sys::GGML_OP_CLAMP => sources(t).and_then(|[a]| {
            rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
            need(a.is_contiguous_1(), EVEN) // H10
        }),
        sys::GGML_OP_SCALE => sources(t).and_then(|[a]| {
            rows_of(a, &[DType::F32, DType::BF16], "the CPU kernel takes f32 or bf16")?;
            need(a.is_packed(), PACKED)
        }),
        sys::GGML_OP_GLU => {
            let [unit, ..] = t.op_params();
            let (types, otherwise): (&[DType], _) = match unit.cast_unsigned() {
                sys::GGML_GLU_OP_SWIGLU_OAI => (&[DType::F32], "the CPU kernel takes f32 only"),
                sys::GGML_GLU_OP_SWIGLU_CLAMP => (&[DType::F32, DType::F16], "the CPU kernel takes f32 or f16"),
                _ => (&FLOATS, "the CPU kernel takes f32, f16 or bf16"),
            };
            t.sources().try_for_each(|a| {
                rows_of(a, types, otherwise)?;
                need(a.is_contiguous_1(), EVEN)
            })
        }
        sys::GGML_OP_ADD | sys::GGML_OP_SUB | sys::GGML_OP_MUL | sys::GGML_OP_DIV => {
            sources(t).and_then(|[a, b]| match t.op() {
                sys::GGML_OP_ADD if a.dtype().is_quantized() => add_to_blocks(a, b, t),
                _ => binary(a, b, t),
            })
        }
        sys::GGML_OP_ADD1 => sources(t).and_then(|[a, b]| add1(a, b, t)),
        _ => return None,
    })
}

fn binary(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Verdict {
    need(float_pair(a, b), PAIR)?;
    // The sum of f16 or bf16 and f32 may also be f32 (`add_cast`).
    let made = t.dtype() == a.dtype() || (t.dtype() == DType::F32 && b.dtype() == DType::F32);
    need(made, "the CPU kernel makes the first operand's type, or f32 if the second is f32")?;
    need(a.has_dense_rows(), "the CPU kernel needs contiguous rows in the first operand; use `cont`")
}

const PAIR: &str = "the CPU kernel takes two operands of one float type, or f16 or bf16 with f32";

fn float_pair(a: TensorPtr, b: TensorPtr) -> bool {
    match (a.dtype(), b.dtype()) {
        (x, y) if x == y => x.is_float(),
        (DType::F16 | DType::BF16, DType::F32) => true,
        _ => false,
    }
}

/// The kernel dequantises a row, adds to it, and converts it to the type of the result.
fn add_to_blocks(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Verdict {
    need(copy::has_float_rows(a.dtype()), "the CPU can't read rows of this type")?;
    // The kernel takes any other type for f32, and writes past the row.
    let made = t.dtype().is_float() || copy::can_quantise(t.dtype());
    need(made, "the CPU can't convert rows to the result's type")?;
    need(b.dtype() == DType::F32 && a.ne() == b.ne(), "the CPU kernel adds f32 of the same shape to blocks")?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)?;
    need(t.nb().is_sorted(), "the CPU kernel needs the dimensions in order of their strides; use `cont`")
}

/// Where the first operand is `f32`, the kernel reads the scalar as `f32` too.
fn add1(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Verdict {
    if !a.dtype().is_quantized() {
        need(float_pair(a, b), PAIR)?;
        return need(a.has_dense_rows(), ROWS);
    }
    let both_ways = copy::has_float_rows(a.dtype()) && copy::can_quantise(a.dtype());
    need(both_ways && b.dtype() == DType::F32, "the CPU kernel adds f32 to blocks that it converts both ways")?;
    // The kernel finds batches of the result by the first stride instead of the fourth.
    let [_, _, _, batches] = a.ne();
    need(
        batches == 1 && a.has_dense_rows() && t.nb().is_sorted(),
        "the CPU kernel needs a block type with strides in order and a fourth dimension of 1",
    )
}
