//! Softmax over rows, and masks.

use ggml::SoftMax;
use ggml::prelude::*;

use super::{Op, op};
use crate::array::Array;
use crate::draw::build;
use crate::model::Model;

fn soft_max(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::MIN, f64::max);
    let all: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / all).collect()
}

pub(super) const OPS: &[Op] = &[
    op("soft_max", |p| {
        let a = p.plain()?;
        let t = build!(p, soft_max(a.t));
        Ok(p.rows(t, &a, |m| (2.0 * m.error).exp_m1() + 1e-5, soft_max))
    }),
    op("soft_max_ext", |p| {
        let a = p.plain()?;
        let [n0, n1, n2, n3] = a.ne();
        let mut how = SoftMax::default();
        how.scale = p.float(-2.0, 2.0);
        if p.rng.bool() {
            let (dtype, more) = (p.one(&[DType::F32, DType::F16]), p.rng.i64(0..2));
            let (m2, m3) = (if p.rng.bool() { n2 } else { 1 }, if p.rng.bool() { n3 } else { 1 });
            how.mask = Some(p.fresh(dtype, [n0, n1.saturating_add(more), m2, m3])?.t);
        }
        if p.chance(3) {
            how.max_bias = p.float(0.0, 8.0);
        }
        if p.chance(3) {
            how.sinks = Some(p.fresh(DType::F32, [n2, 1, 1, 1])?.t);
        }
        let t = build!(p, soft_max_ext(a.t, how));
        Ok(p.only(t))
    }),
    op("diag_mask_inf", |p| {
        let (a, past) = (p.plain()?, p.int(0, 6));
        let t = build!(p, diag_mask_inf(a.t, past));
        // Infinity is not followed: only what is masked nowhere.
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            let masked = Array::of(values.ne, |i| {
                if i[0] as i64 > i[1] as i64 + i64::from(past) { f64::NEG_INFINITY } else { values.at(i) }
            });
            Model::new(&masked, t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
];
