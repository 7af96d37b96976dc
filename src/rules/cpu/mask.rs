//! Masks and triangles.

use ggml_sys as sys;

use super::rows::only_f32;
use super::{PACKED, Verdict, need, sources};
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_DIAG_MASK_INF | sys::GGML_OP_DIAG_MASK_ZERO => sources(t).and_then(|[a]| {
            only_f32(a)?;
            need(a.is_packed(), PACKED)
        }),
        sys::GGML_OP_DIAG => sources(t).and_then(|[a]| only_f32(a)),
        sys::GGML_OP_TRI => sources(t).and_then(|[a]| {
            only_f32(a)?;
            need(a.is_contiguous(), "the CPU kernel needs a contiguous operand; use `cont`")
        }),
        _ => return None,
    })
}
