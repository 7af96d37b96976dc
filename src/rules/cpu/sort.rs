//! Sorts.

use ggml_sys as sys;

use super::rows::only_f32;
use super::{EVEN, Verdict, need, sources};
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    is_sort(t).then(|| {
        sources(t).and_then(|[a]| {
            only_f32(a)?;
            need(a.is_contiguous_1(), EVEN)
        })
    })
}

/// Whether the operation is a sort, whose CPU kernel must not get NaN.
pub(crate) fn is_sort(t: TensorPtr) -> bool {
    matches!(t.op(), sys::GGML_OP_ARGSORT | sys::GGML_OP_TOP_K)
}

/// Whether the operation may be the clamp to the infinities by which `ops/sort.rs` removes NaN before a sort.
pub(crate) fn readies(t: TensorPtr) -> bool {
    let [least, most, ..] = t.op_params();
    let limits = [f32::NEG_INFINITY, f32::INFINITY].map(|x| x.to_bits().cast_signed());
    t.op() == sys::GGML_OP_CLAMP && [least, most] == limits
}
