//! Masks, triangles and sorts.

use ggml::ops::{SortOrder, TriType};
use ggml::prelude::*;
use testkit::array::Array;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::build;
use crate::model::Model;

/// The values with something else where the column is above the row plus `past`.
fn masked(a: &Known<'_>, past: i32, otherwise: f64) -> Option<(Array, f64)> {
    let m = a.model.as_ref()?;
    let values = m.array();
    let hidden = |i: [usize; 4]| i[0] as i64 > i[1] as i64 + i64::from(past);
    Some((Array::of(values.ne, |i| if hidden(i) { otherwise } else { values.at(i) }), m.error))
}

macro_rules! futures {
    ($($name:ident, $inplace:ident $otherwise:expr;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let (a, past) = (p.plain()?, p.int(0, 6));
                let t = build!(p, $name(a.t, past));
                // Infinity is not followed: only what is masked nowhere.
                Ok(p.made(t, masked(&a, past, $otherwise).and_then(|(v, e)| Model::new(&v, t.dtype(), e))))
            }),
            op(stringify!($inplace), |p| {
                let (a, past) = (p.writable(), p.int(0, 6));
                let t = build!(p, $inplace(a.t, past));
                Ok(p.wrote(t, &a, masked(&a, past, $otherwise)))
            }),
        )*]
    };
}

pub(super) const TABLE: &[Op] = futures! {
    diag_mask_inf, diag_mask_inf_inplace f64::NEG_INFINITY;
    diag_mask_zero, diag_mask_zero_inplace 0.0;
};

pub(super) const OPS: &[Op] = &[
    op("diag", |p| {
        let (n, n2) = (p.dim(), p.rng.i64(1..3));
        let a = p.operand(DType::F32, [n, 1, n2, 1])?;
        let t = build!(p, diag(a.t));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            let ne = t.ne().map(|n| n as usize);
            let square = Array::of(ne, |[i, j, k, l]| if i == j { values.at([i, 0, k, l]) } else { 0.0 });
            Model::new(&square, t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
    op("tri", |p| {
        let (n, n2) = (p.dim(), p.rng.i64(1..3));
        let a = p.operand(DType::F32, [n, n, n2, 1])?;
        let kind = p.one(&[TriType::Lower, TriType::LowerDiag, TriType::Upper, TriType::UpperDiag]);
        let t = build!(p, tri(a.t, kind));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            let kept = |column: usize, row: usize| match kind {
                TriType::Lower => column < row,
                TriType::LowerDiag => column <= row,
                TriType::Upper => column > row,
                _ => column >= row,
            };
            let part = Array::of(values.ne, |i| if kept(i[0], i[1]) { values.at(i) } else { 0.0 });
            Model::new(&part, t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
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
