//! Rules of the CPU for element-wise functions of one or two operands.

use super::copy;
use super::prelude::*;

/// The rule for most functions of one operand's elements. Rows may be any distance apart.
pub(super) fn function(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    rows_of(a, &FLOATS, "the CPU kernel takes f32, f16 or bf16")
}

pub(super) fn xielu(t: TensorPtr) -> Verdict {
    function(t)?;
    let [a] = sources(t)?;
    need(a.is_contiguous_1(), EVEN)
}

/// A function without a kernel for bf16, which may find rows by one stride alone.
pub(super) fn f32_or_f16(t: TensorPtr, is_even: bool) -> Verdict {
    let [a] = sources(t)?;
    rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
    need(!is_even || a.is_contiguous_1(), EVEN) // H10
}

pub(super) fn scale(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    rows_of(a, &[DType::F32, DType::BF16], "the CPU kernel takes f32 or bf16")?;
    need(cfg!(ggml_0_28) || a.is_packed(), PACKED)
}

pub(super) fn fill(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    need(matches!(a.dtype(), DType::F32 | DType::F16), "the CPU kernel takes f32 or f16")?;
    // The kernel fills the result row by row, so only rows must be contiguous.
    need(t.has_dense_rows(), ROWS)
}

pub(super) fn glu(t: TensorPtr) -> Verdict {
    gated(t, &FLOATS, "the CPU kernel takes f32, f16 or bf16")
}

pub(super) fn swiglu_oai(t: TensorPtr) -> Verdict {
    if cfg!(ggml_0_28) { swiglu_clamp(t) } else { gated(t, &[DType::F32], "the CPU kernel takes f32 only") }
}

pub(super) fn swiglu_clamp(t: TensorPtr) -> Verdict {
    gated(t, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")
}

fn gated(t: TensorPtr, types: &[DType], otherwise: &'static str) -> Verdict {
    t.sources().try_for_each(|a| {
        rows_of(a, types, otherwise)?;
        need(a.is_contiguous_1(), EVEN)
    })
}

pub(super) fn add(t: TensorPtr) -> Verdict {
    let [a, b] = sources(t)?;
    if a.dtype().is_quantized() { add_to_blocks(a, b, t) } else { binary(t) }
}

pub(super) fn binary(t: TensorPtr) -> Verdict {
    let [a, b] = sources(t)?;
    need(float_pair(a, b), PAIR)?;
    // The sum of `f16` or `bf16` and `f32` may be `f32`, too (`add_cast`).
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

/// The rule for adding `f32` to blocks: the kernel dequantises a row, adds to it, and converts it to the type of the
/// result.
fn add_to_blocks(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Verdict {
    need(copy::has_float_rows(a.dtype()), "the CPU can't read rows of this type")?;
    // The kernel takes a result of any other type for `f32`, and writes past the row.
    let made = t.dtype().is_float() || copy::can_quantise(t.dtype());
    need(made, "the CPU can't convert rows to the result's type")?;
    need(b.dtype() == DType::F32 && a.ne() == b.ne(), "the CPU kernel adds f32 of the same shape to blocks")?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)?;
    need(t.nb().is_sorted(), "the CPU kernel needs the dimensions in order of their strides; use `cont`")
}

/// The rule for `add1`. If the first operand is `f32`, the kernel reads the scalar as `f32`, too.
pub(super) fn add1(t: TensorPtr) -> Verdict {
    let [a, b] = sources(t)?;
    if !a.dtype().is_quantized() {
        need(float_pair(a, b), PAIR)?;
        return need(a.has_dense_rows(), ROWS);
    }
    let both_ways = copy::has_float_rows(a.dtype()) && copy::can_quantise(a.dtype());
    need(both_ways && b.dtype() == DType::F32, "the CPU kernel adds f32 to blocks that it converts both ways")?;
    // For blocks, the kernel finds batches of the result by the first stride instead of the fourth.
    let [_, _, _, batches] = a.ne();
    need(
        batches == 1 && a.has_dense_rows() && t.nb().is_sorted(),
        "the CPU kernel needs a block type with strides in order and a fourth dimension of 1",
    )
}
