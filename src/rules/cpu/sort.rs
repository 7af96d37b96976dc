//! Rules of the CPU for sorts.

use super::prelude::*;
use super::rows::only_f32;
use crate::op::Operation;

pub(super) fn sort(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    only_f32(a)?;
    need(a.is_contiguous_1(), EVEN)
}

/// Whether the operation may be the clamp to the infinities by which `ops/sort.rs` removes NaN before a sort.
pub(crate) fn clamps_nan(t: TensorPtr) -> bool {
    let infinite = |min: f32, max: f32| (min, max) == (f32::NEG_INFINITY, f32::INFINITY);
    matches!(Operation::of(t), Some(Operation::Clamp { min, max }) if infinite(min, max))
}
