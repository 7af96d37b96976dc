//! Sorts, and masks of what they pick.

use ggml::ops::SortOrder;
use ggml::prelude::*;

use super::{Op, op};
use crate::draw::build;

pub(super) const OPS: &[Op] = &[
    op("argsort", |p| {
        let (a, order) = (p.f32(), p.one(&[SortOrder::Asc, SortOrder::Desc]));
        let t = build!(p, argsort(a.t, order));
        Ok(p.only(t))
    }),
    op("argsort_top_k", |p| {
        let a = p.f32();
        let most = i32::try_from(a.ne()[0]).unwrap_or(1).clamp(1, 64);
        let k = p.int(1, most);
        let t = build!(p, argsort_top_k(a.t, k));
        Ok(p.only(t))
    }),
    op("top_k", |p| {
        let a = p.f32();
        let most = i32::try_from(a.ne()[0]).unwrap_or(1).clamp(1, 64);
        let k = p.int(1, most);
        let t = build!(p, top_k(a.t, k));
        Ok(p.only(t))
    }),
    #[cfg(ggml_0_28)]
    op("top_k_mask", |p| {
        let (n, k, n1, n2) = (p.dim(), p.rng.i64(1..5), p.rng.i64(1..4), p.rng.i64(1..3));
        let dtype = p.one(&[DType::F32, DType::F16]);
        let m1 = if p.rng.bool() { n1 } else { 1 };
        let mask = p.operand(dtype, [n, m1, n2, 1])?;
        // Indices out of range are passed over.
        let picks = p.operand(DType::I32, [k, n1, n2, 1])?;
        let n_pick = p.dim();
        let mut how = ops::TopKMaskOptions::new();
        if p.rng.bool() {
            how = how.with_score(p.operand(DType::F32, [n_pick, n1, n2, 1])?.t);
        }
        if p.rng.bool() {
            how = how.with_blocks(p.operand(DType::I32, [2, n_pick, 1, 1])?.t);
        }
        if p.rng.bool() {
            how = how.with_extra(p.operand(DType::I32, [3, n1, n2, 1])?.t);
        }
        let t = build!(p, top_k_mask(mask.t, picks.t, how));
        Ok(p.only(t))
    }),
];
