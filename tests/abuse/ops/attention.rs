//! Attention, recurrences, and what belongs to them. None of it is followed by a model; two computations must agree.

use ggml::ops::{
    FlashAttnOptions, GatedDeltaNetOperands, GatedLinearAttnOperands, Prec, RwkvWkv6Operands, RwkvWkv7Operands,
    SsmScanOperands,
};
use ggml::prelude::*;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};

pub(super) const OPS: &[Op] = &[
    op("flash_attn_ext", |p| {
        let (types, n_kv, batch, kv_heads) =
            ([DType::F32, DType::F16, DType::Q8_0, DType::Q4_0], p.dim(), p.dim(), p.rng.i64(1..3));
        let (heads, n3) = (kv_heads * p.rng.i64(1..3), p.rng.i64(1..3));
        let (tk, tv) = (p.dtype(&types), p.dtype(&types));
        let size = |p: &mut Draw<'_, '_>, t: DType| if t.block_size() > 1 { t.block_size() } else { p.rng.i64(1..9) };
        let dk = size(p, tk);
        let dv = if tv.block_size() > 1 { tv.block_size() } else { p.rng.i64(1..9) };
        let q = p.operand(DType::F32, [dk, batch, heads, n3])?;
        let k = p.operand(tk, [dk, n_kv, kv_heads, n3])?;
        let v = p.operand(tv, [dv, n_kv, kv_heads, n3])?;
        let mut how = FlashAttnOptions::new(p.float(0.1, 1.0));
        if p.rng.bool() {
            let (m2, m3) = (if p.rng.bool() { heads } else { 1 }, if p.rng.bool() { n3 } else { 1 });
            let rows = batch.saturating_add(p.rng.i64(0..2));
            let mask = p.fresh(DType::F16, [n_kv, rows, m2, m3])?.t;
            how = how.with_mask(mask).with_max_bias(if p.rng.bool() { p.float(0.0, 8.0) } else { 0.0 });
        }
        how = how.with_logit_softcap(if p.chance(3) { p.float(0.0, 10.0) } else { 0.0 });
        if p.chance(3) {
            how = how.with_sinks(p.fresh(DType::F32, [heads, 1, 1, 1])?.t);
        }
        let acc = p.chance(4).then(|| p.one(&[Prec::F32, Prec::F32, Prec::F16, Prec::Q4]));
        how = how.with_acc(acc).with_n_kv_max(p.int(0, 4));
        let t = build!(p, flash_attn_ext(q.t, k.t, v.t, how));
        Ok(p.only(t))
    }),
    op("lightning_indexer", |p| {
        let (size, heads, batch, n_kv, n3) = (p.dim(), p.rng.i64(1..4), p.dim(), p.dim(), p.rng.i64(1..3));
        let q = p.operand(DType::F32, [size, heads, batch, n3])?;
        let dtype = p.dtype(&[DType::F32, DType::F16]);
        let k = p.operand(dtype, [size, 1, n_kv, n3])?;
        let weights = p.operand(DType::F32, [heads, batch, 1, n3])?;
        let m3 = if p.rng.bool() { n3 } else { 1 };
        let mask = p.operand(DType::F16, [n_kv, batch, 1, m3])?;
        let t = build!(p, lightning_indexer(q.t, k.t, weights.t, mask.t));
        Ok(p.only(t))
    }),
    op("get_rel_pos", |p| {
        let (size, n) = (p.dim(), p.int(1, 6));
        let other = if p.wild() { p.int(1, 6) } else { n };
        let a = p.operand(DType::F16, [size, 2 * i64::from(n) - 1, 1, 1])?;
        let t = build!(p, get_rel_pos(a.t, n, other));
        Ok(p.only(t))
    }),
    op("add_rel_pos", |p| {
        let [w, n1, n2, n3] = [(); 4].map(|()| p.rng.i64(1..4));
        let a = p.fresh(DType::F32, [w * w, n1 * n2, n3, 1])?;
        let (pw, ph) = (p.fresh(DType::F32, [w, n1, n2, n3])?, p.operand(DType::F32, [w, n1, n2, n3])?);
        let t = build!(p, add_rel_pos(a.t, pw.t, ph.t));
        Ok(p.only(t))
    }),
    op("add_rel_pos_inplace", |p| {
        let [w, n1, n2, n3] = [(); 4].map(|()| p.rng.i64(1..4));
        let a = p.node(DType::F32, [w * w, n1 * n2, n3, 1])?;
        let (pw, ph) = (p.fresh(DType::F32, [w, n1, n2, n3])?, p.operand(DType::F32, [w, n1, n2, n3])?);
        let t = build!(p, add_rel_pos_inplace(a.t, pw.t, ph.t));
        Ok(p.wrote(t, &a, None))
    }),
];

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

pub(super) const STREAMS: &[Op] = &[
    op("dsv4_hc_comb", |p| {
        let n = p.dim();
        let mixes = p.operand(DType::F32, [24, n, 1, 1])?;
        let (scale, base) = (p.operand(DType::F32, [3, 1, 1, 1])?, p.operand(DType::F32, [24, 1, 1, 1])?);
        let (eps, rounds) = (p.float(1e-6, 0.1), p.rng.i32(-1..5));
        let t = build!(p, dsv4_hc_comb(mixes.t, scale.t, base.t, eps, rounds));
        Ok(p.only(t))
    }),
    op("dsv4_hc_pre", |p| {
        let (width, streams, n) = (p.dim(), p.rng.i64(1..6), p.dim());
        let x = p.operand(DType::F32, [width, streams, n, 1])?;
        let weights = p.operand(DType::F32, [streams, n, 1, 1])?;
        let t = build!(p, dsv4_hc_pre(x.t, weights.t));
        Ok(p.only(t))
    }),
    op("dsv4_hc_pre_gated", |p| {
        let (width, streams, n) = (p.dim(), p.rng.i64(1..6), p.dim());
        let x = p.operand(DType::F32, [width, streams, n, 1])?;
        let gate = p.operand(DType::F32, [width, streams, n, 1])?;
        let scale = p.float(0.1, 2.0);
        let t = build!(p, dsv4_hc_pre_gated(x.t, gate.t, scale));
        Ok(p.only(t))
    }),
    op("dsv4_hc_post", |p| {
        let (width, streams, n) = (p.dim(), p.rng.i64(1..6), p.dim());
        let x = p.operand(DType::F32, [width, n, 1, 1])?;
        let residual = p.operand(DType::F32, [width, streams, n, 1])?;
        let post = p.operand(DType::F32, [streams, n, 1, 1])?;
        let comb = if p.rng.bool() { Some(p.operand(DType::F32, [streams, streams, n, 1])?.t) } else { None };
        let t = build!(p, dsv4_hc_post(x.t, residual.t, post.t, comb));
        Ok(p.only(t))
    }),
];
