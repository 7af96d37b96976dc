//! Softmax over rows, and masks.

use ggml::ops::SoftMaxOptions;
use ggml::prelude::*;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};
use crate::results::rowed;

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
    op("soft_max_inplace", |p| {
        let a = p.writable();
        let t = build!(p, soft_max_inplace(a.t));
        Ok(p.wrote(t, &a, rowed(&a, |m| (2.0 * m.error).exp_m1() + 1e-5, soft_max)))
    }),
    op("soft_max_ext", |p| {
        let a = p.plain()?;
        let how = how(p, &a)?;
        let t = build!(p, soft_max_ext(a.t, how));
        Ok(p.only(t))
    }),
    op("soft_max_ext_inplace", |p| {
        let a = p.writable();
        let how = how(p, &a)?;
        let t = build!(p, soft_max_ext_inplace(a.t, how));
        Ok(p.wrote(t, &a, None))
    }),
    op("soft_max_ext_back", |p| {
        let a = p.plain()?;
        let (b, scale) = (p.operand(a.dtype(), a.ne())?, p.float(-2.0, 2.0));
        let t = build!(p, soft_max_ext_back(a.t, b.t, scale));
        Ok(p.only(t))
    }),
    op("soft_max_ext_back_inplace", |p| {
        let a = p.writable();
        let (b, scale) = (p.operand(a.dtype(), a.ne())?, p.float(-2.0, 2.0));
        let t = build!(p, soft_max_ext_back_inplace(a.t, b.t, scale));
        Ok(p.wrote(t, &a, None))
    }),
];

fn how<'c>(p: &mut Draw<'_, 'c>, a: &Known<'c>) -> ggml::Result<SoftMaxOptions<'c>> {
    let [n0, n1, n2, n3] = a.ne();
    let mut how = SoftMaxOptions::new().with_scale(p.float(-2.0, 2.0));
    if p.rng.bool() {
        let (dtype, more) = (p.one(&[DType::F32, DType::F16]), p.rng.i64(0..2));
        let (m2, m3) = (if p.rng.bool() { n2 } else { 1 }, if p.rng.bool() { n3 } else { 1 });
        how = how.with_mask(p.fresh(dtype, [n0, n1.saturating_add(more), m2, m3])?.t);
    }
    if p.chance(3) {
        how = how.with_max_bias(p.float(0.0, 8.0));
    }
    if p.chance(3) {
        how = how.with_sinks(p.fresh(DType::F32, [n2, 1, 1, 1])?.t);
    }
    Ok(how)
}
