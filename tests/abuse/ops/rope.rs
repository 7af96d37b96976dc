//! Rotary position embedding.

use ggml::ops::{RopeMode, RopeOptions};
use ggml::prelude::*;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};

fn even(k: &Known<'_>) -> bool {
    matches!(k.dtype(), DType::F32 | DType::F16) && k.ne()[0] % 2 == 0
}

/// A number of dimensions of `a` to rotate.
fn n_dims(p: &mut Draw<'_, '_>, a: &Known<'_>) -> i32 {
    let row = i32::try_from(a.ne()[0]).unwrap_or(2);
    p.int(1, (row / 2).max(1)).wrapping_mul(if p.wild() { 1 } else { 2 })
}

const MODES: &[RopeMode] = &[RopeMode::Normal, RopeMode::NeoX, RopeMode::MRope, RopeMode::IMRope, RopeMode::Vision];

fn positions<'c>(p: &mut Draw<'_, 'c>, a: &Known<'c>, mode: RopeMode) -> ggml::Result<Known<'c>> {
    let several = !matches!(mode, RopeMode::Normal | RopeMode::NeoX);
    p.indices(DType::I32, [a.ne()[2].saturating_mul(if several { 4 } else { 1 }), 1, 1, 1], 100)
}

fn how<'c>(p: &mut Draw<'_, 'c>, a: &Known<'c>) -> ggml::Result<(RopeOptions<'c>, Known<'c>)> {
    let n = n_dims(p, a);
    let mut how = RopeOptions::new(n, p.one(MODES));
    if !matches!(how.mode, RopeMode::Normal | RopeMode::NeoX) || p.wild() {
        let most = (n / 4).clamp(1, 100);
        how = how.with_sections([p.int(0, most), p.int(1, most), p.int(0, most), p.int(0, most)]);
    }
    if how.mode == RopeMode::Vision && !p.wild() {
        let n = i32::try_from(a.ne()[0] / 2).unwrap_or(2);
        let first = p.int(0, n);
        let sections = [first, n.wrapping_sub(first), how.sections[2].min(first), 0];
        how = RopeOptions::new(n, how.mode).with_sections(sections);
    } else if p.chance(4) {
        how = how.with_offset(p.int(0, 2).wrapping_mul(2));
    }
    if p.chance(3) {
        how = how.with_freq_factors(p.operand(DType::F32, [a.ne()[0] / 2, 1, 1, 1])?.t);
    }
    if p.rng.bool() {
        how = how
            .with_n_ctx_orig(p.int(0, 4096))
            .with_freq_base(p.float(1.0, 1e5))
            .with_freq_scale(p.float(0.1, 2.0))
            .with_ext_factor(p.float(0.0, 1.0))
            .with_attn_factor(p.float(0.5, 2.0))
            .with_beta_fast(p.float(1.0, 64.0))
            .with_beta_slow(p.float(0.5, 2.0));
    }
    let positions = positions(p, a, how.mode)?;
    Ok((how, positions))
}

pub(super) const OPS: &[Op] = &[
    op("rope", |p| {
        let a = p.pick(even);
        let (n, mode) = (n_dims(p, &a), p.one(&MODES[..2]));
        let positions = positions(p, &a, mode)?;
        let t = build!(p, rope(a.t, positions.t, n, mode));
        Ok(p.only(t))
    }),
    op("rope_inplace", |p| {
        let a = p.writable();
        let (n, mode) = (n_dims(p, &a), p.one(&MODES[..2]));
        let positions = positions(p, &a, mode)?;
        let t = build!(p, rope_inplace(a.t, positions.t, n, mode));
        Ok(p.wrote(t, &a, None))
    }),
    op("rope_ext", |p| {
        let a = p.pick(even);
        let (how, positions) = how(p, &a)?;
        let t = build!(p, rope_ext(a.t, positions.t, how));
        Ok(p.only(t))
    }),
    op("rope_ext_inplace", |p| {
        let a = p.writable();
        let (how, positions) = how(p, &a)?;
        let t = build!(p, rope_ext_inplace(a.t, positions.t, how));
        Ok(p.wrote(t, &a, None))
    }),
    op("rope_ext_back", |p| {
        let a = p.pick(even);
        let (how, positions) = how(p, &a)?;
        let t = build!(p, rope_ext_back(a.t, positions.t, how));
        Ok(p.only(t))
    }),
];
