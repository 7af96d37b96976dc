//! Recurrences. None of them is followed by a model; two computations must agree.

use ggml::ops::{GatedDeltaNetOperands, GatedLinearAttnOperands, RwkvWkv6Operands, RwkvWkv7Operands, SsmScanOperands};
use ggml::prelude::*;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};

/// Operands of recurrences: `[size, heads, tokens]`.
fn tokens<'c, const N: usize>(p: &mut Draw<'_, 'c>) -> ggml::Result<([Known<'c>; N], Known<'c>, [i64; 4])> {
    let (size, heads, sequences) = (p.one(&[1, 2, 4, 8, 16, 64]), p.rng.i64(1..3), p.rng.i64(1..3));
    let size = if N == 6 && !p.chance(4) {
        64
    } else if size == 64 {
        4
    } else {
        size
    };
    let heads = if size == 64 { 1 } else { heads };
    let n = sequences * p.rng.i64(1..3);
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(if p.chance(8) {
            p.operand(DType::F32, [size, heads, n, 1])?
        } else {
            p.fresh(DType::F32, [size, heads, n, 1])?
        });
    }
    let states = if p.wild() { n } else { sequences };
    let state = p.fresh(DType::F32, [size * size * heads, states, 1, 1])?;
    let Ok(all) = <[Known<'c>; N]>::try_from(all) else { unreachable!("as many as were made") };
    Ok((all, state, [size, heads, n, sequences]))
}

pub(super) const RECURRENT: &[Op] = &[
    op("gated_linear_attn", |p| {
        let ([k, v, q, g], state, _) = tokens::<4>(p)?;
        let scale = p.float(0.1, 1.0);
        let on = GatedLinearAttnOperands { k: k.t, v: v.t, q: q.t, g: g.t, state: state.t };
        let t = build!(p, gated_linear_attn(on, scale));
        Ok(p.only(t))
    }),
    op("rwkv_wkv6", |p| {
        let ([k, v, r, td], state, [size, heads, ..]) = tokens::<4>(p)?;
        let tf = p.fresh(DType::F32, [size, heads, 1, 1])?;
        let on = RwkvWkv6Operands { k: k.t, v: v.t, r: r.t, tf: tf.t, td: td.t, state: state.t };
        let t = build!(p, rwkv_wkv6(on));
        Ok(p.only(t))
    }),
    op("rwkv_wkv7", |p| {
        let ([r, w, k, v, a, b], state, _) = tokens::<6>(p)?;
        let on = RwkvWkv7Operands { r: r.t, w: w.t, k: k.t, v: v.t, a: a.t, b: b.t, state: state.t };
        let t = build!(p, rwkv_wkv7(on));
        Ok(p.only(t))
    }),
    op("gated_delta_net", |p| {
        let (size, qk, n, sequences) = (p.rng.i64(1..9), p.rng.i64(1..3), p.rng.i64(1..4), p.rng.i64(1..3));
        let heads = qk * p.rng.i64(1..3);
        let (q, k) = (p.operand(DType::F32, [size, qk, n, sequences])?, p.fresh(DType::F32, [size, qk, n, sequences])?);
        let v = p.fresh(DType::F32, [size, heads, n, sequences])?;
        let per = if p.rng.bool() { size } else { 1 };
        let g = p.fresh(DType::F32, [per, heads, n, sequences])?;
        let beta = p.fresh(DType::F32, [1, heads, n, sequences])?;
        let state = p.fresh(DType::F32, [size, size, heads, sequences])?;
        let snapshots = p.long(1, n);
        let on = GatedDeltaNetOperands { q: q.t, k: k.t, v: v.t, g: g.t, beta: beta.t, state: state.t };
        let t = build!(p, gated_delta_net(on, snapshots));
        Ok(p.only(t))
    }),
    op("ssm_conv", |p| {
        let (width, n, channels, sequences) = (p.rng.i64(1..5), p.rng.i64(1..5), p.dim(), p.rng.i64(1..3));
        let sx = p.operand(DType::F32, [width - 1 + n, channels, sequences, 1])?;
        let c = p.operand(DType::F32, [width, channels, 1, 1])?;
        let t = build!(p, ssm_conv(sx.t, c.t));
        Ok(p.only(t))
    }),
    op("ssm_scan", |p| {
        let (d, size, groups, n, sequences) =
            (p.rng.i64(1..9), p.rng.i64(1..5), p.rng.i64(1..3), p.rng.i64(1..4), p.rng.i64(1..3));
        let (heads, states) = (groups * p.rng.i64(1..3), sequences + p.rng.i64(0..2));
        let s = p.fresh(DType::F32, [d, size, heads, states])?;
        let x = p.fresh(DType::F32, [size, heads, n, sequences])?;
        let dt = p.fresh(DType::F32, [heads, n, sequences, 1])?;
        let rates = if p.rng.bool() { 1 } else { d };
        let a = p.fresh(DType::F32, [rates, heads, 1, 1])?;
        let (b, c) =
            (p.fresh(DType::F32, [d, groups, n, sequences])?, p.operand(DType::F32, [d, groups, n, sequences])?);
        let ids = p.indices(DType::I32, [sequences, 1, 1, 1], states)?;
        let snapshots = if rates == 1 { p.long(1, n) } else { p.long(1, 1) };
        let on = SsmScanOperands { s: s.t, x: x.t, dt: dt.t, a: a.t, b: b.t, c: c.t, ids: ids.t };
        let t = build!(p, ssm_scan(on, snapshots));
        Ok(p.only(t))
    }),
];
