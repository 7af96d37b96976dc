//! Masks and triangles.

use ggml_sys as sys;

use super::rows::only_f32;
#[cfg(ggml_0_28)]
use super::rows_of;
use super::{PACKED, Verdict, need, sources};
#[cfg(ggml_0_28)]
use crate::dtype::DType;
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
        #[cfg(ggml_0_28)]
        sys::GGML_OP_TOP_K_MASK => sources(t)
            .and_then(|[mask]| rows_of(mask, &[DType::F32, DType::F16], "the CPU kernel takes masks of f32 or f16")),
        _ => return None,
    })
}
