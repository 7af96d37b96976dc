//! Rotary position embedding.

use ggml::prelude::*;
use ggml::{Rope, RopeMode};

use super::{Op, op};
use crate::draw::{Draw, Known, build};

/// An operand with rows of even length, and a number of dimensions to rotate.
fn rotated<'c>(p: &mut Draw<'_, 'c>) -> (Known<'c>, i32) {
    let a = p.pick(|k| matches!(k.dtype(), DType::F32 | DType::F16) && k.ne()[0] % 2 == 0);
    let row = i32::try_from(a.ne()[0]).unwrap_or(2);
    let n = p.int(1, (row / 2).max(1));
    (a, n.wrapping_mul(if p.wild() { 1 } else { 2 }))
}

const MODES: &[RopeMode] = &[RopeMode::Normal, RopeMode::NeoX];

pub(super) const OPS: &[Op] = &[
    op("rope", |p| {
        let (a, n_dims) = rotated(p);
        let positions = p.indices(DType::I32, [a.ne()[2], 1, 1, 1], 100)?;
        let mode = p.one(MODES);
        let t = build!(p, rope(a.t, positions.t, n_dims, mode));
        Ok(p.only(t))
    }),
    op("rope_ext", |p| {
        let (a, n_dims) = rotated(p);
        let positions = p.indices(DType::I32, [a.ne()[2], 1, 1, 1], 100)?;
        let mut how = Rope::new(n_dims, p.one(MODES));
        if p.chance(3) {
            how.freq_factors = Some(p.operand(DType::F32, [a.ne()[0] / 2, 1, 1, 1])?.t);
        }
        if p.rng.bool() {
            how.n_ctx_orig = p.int(0, 4096);
            how.freq_base = p.float(1.0, 1e5);
            how.freq_scale = p.float(0.1, 2.0);
            how.ext_factor = p.float(0.0, 1.0);
            how.attn_factor = p.float(0.5, 2.0);
            how.beta_fast = p.float(1.0, 64.0);
            how.beta_slow = p.float(0.5, 2.0);
        }
        let t = build!(p, rope_ext(a.t, positions.t, how));
        Ok(p.only(t))
    }),
];
