//! `set` and `acc`, which write or add to a part of a tensor. The builder checks that the part is in bounds (H5).

use ggml_sys as sys;

use super::{ROWS, Verdict, need, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    let types: &[DType] = match t.op() {
        sys::GGML_OP_SET => &[DType::F32, DType::I32],
        sys::GGML_OP_ACC => &[DType::F32],
        _ => return None,
    };
    Some(sources(t).and_then(|[a, b]| {
        need(types.contains(&a.dtype()), "the CPU kernel sets f32 or i32, and adds f32")?;
        need(a.is_contiguous(), "the CPU kernel needs a contiguous first operand; use `cont`")?;
        need(b.has_dense_rows(), ROWS)
    }))
}
