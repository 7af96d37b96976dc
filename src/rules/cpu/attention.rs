//! Rules of the CPU for attention, its indexer, and relative positions.

use super::prelude::*;
use super::{copy, matrix};
use crate::op::{FlashAttnOptions, Prec};

pub(super) fn lightning_indexer(t: TensorPtr) -> Verdict {
    let srcs: [_; 4] = sources(t)?;
    let [_, k, ..] = srcs;
    need(to_float(k.dtype()), "the CPU can't convert keys of this type to f32")?;
    need(srcs.into_iter().all(TensorPtr::has_dense_rows), ROWS)
}

pub(super) fn get_rel_pos(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    need(a.is_contiguous(), "the CPU kernel needs a contiguous operand; use `cont`")
}

pub(super) fn add_rel_pos(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    need(a.dtype() == DType::F32, "the CPU kernel takes f32 only")
}

pub(super) fn flash_attn(t: TensorPtr, how: FlashAttnOptions<'_>) -> Verdict {
    let [q, k, v] = sources(t)?;
    matrix::has_dot_product(k)?;
    need(to_float(k.dtype()), "the CPU can't compute attention with keys of this type")?;
    need(to_float(v.dtype()), "the CPU can't convert values of this type to f32")?;
    need([q, k, v].into_iter().all(TensorPtr::has_dense_rows), ROWS)?;
    need(matches!(how.acc, None | Some(Prec::F32)), "the CPU kernel accumulates in f32 only; leave `acc` out")
}

fn to_float(t: DType) -> bool {
    t.is_float() || copy::has_float_rows(t)
}
