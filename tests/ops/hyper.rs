//! Hyper-connections.

use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// Divides a matrix `[to, from]` of non-negative numbers by its sums over one dimension.
fn divided(m: &Array, over_to: bool, eps: f64) -> Array {
    Array::of(m.ne, |[to, from, ..]| {
        let sum: f64 = (0..4).map(|i| if over_to { m.at([i, from, 0, 0]) } else { m.at([to, i, 0, 0]) }).sum();
        m.at([to, from, 0, 0]) / (sum + eps)
    })
}

/// Reference: the mixing matrix of one token.
fn mixing(mixes: &[f64], scale: f64, base: &[f64], eps: f64, rounds: i32) -> Array {
    let logits = Array::of(ne([4, 4]), |[to, from, ..]| mixes[8 + to + 4 * from] * scale + base[8 + to + 4 * from]);
    let shares = divided(&logits.map(f64::exp), true, 0.0).map(|x| x + eps);
    (1..rounds).fold(divided(&shares, false, eps), |m, _| divided(&divided(&m, true, eps), false, eps))
}

#[test]
fn dsv4_hc_comb_equals_plain_rust() {
    for (tokens, rounds) in [(1, 1), (5, 2), (7, 20)] {
        for layout in Layout::ALL {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 3);
            let (tm, mixes) = lab.operand(&Array::sample(ne([24, tokens]), 1, -2.0, 2.0), DType::F32, layout);
            let (ts, scale) = lab.operand(&Array::sample(ne([4]), 2, 0.5, 1.5), DType::F32, layout);
            let (tb, base) = lab.operand(&Array::sample(ne([24]), 3, -1.0, 1.0), DType::F32, layout);
            let got = lab.run(ctx.dsv4_hc_comb(tm, ts, tb, 0.01, rounds).unwrap()).unwrap();
            let all: Vec<_> =
                mixes.data.chunks(24).map(|m| mixing(m, scale.data[2], &base.data, 0.01, rounds)).collect();
            let want = Array::of(ne([4, 4, tokens]), |[to, from, token, _]| all[token].at([to, from, 0, 0]));
            assert_close(&got, &want, 1e-5, &format!("{tokens} {rounds} {layout:?}"));
        }
    }
}

#[test]
fn dsv4_hc_pre_equals_plain_rust() {
    for (width, streams, tokens) in [(1, 1, 1), (5, 4, 3), (33, 3, 2)] {
        for layout in Layout::ALL {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 3);
            let sample = |shape, seed| lab.operand(&Array::sample(shape, seed, -2.0, 2.0), DType::F32, layout);
            let (tx, x) = sample(ne([width, streams, tokens]), 1);
            let (tw, weights) = sample(ne([streams, tokens]), 2);
            let (tg, gate) = sample(ne([width, streams, tokens]), 3);
            let outputs = [ctx.dsv4_hc_pre(tx, tw).unwrap(), ctx.dsv4_hc_pre_gated(tx, tg, 0.5).unwrap()];
            let got = lab.run_all(&outputs).unwrap();
            let joined = |weight: &dyn Fn([usize; 3]) -> f64| {
                Array::of(ne([width, tokens]), |[i, t, ..]| {
                    (0..streams).map(|h| x.at([i, h, t, 0]) * weight([i, h, t])).sum()
                })
            };
            let context = format!("{width} {streams} {tokens} {layout:?}");
            assert_close(&got[0], &joined(&|[_, h, t]| weights.at([h, t, 0, 0])), 1e-5, &context);
            let gates = joined(&|[i, h, t]| 0.5 / (1.0 + (-gate.at([i, h, t, 0])).exp()));
            assert_close(&got[1], &gates, 1e-5, &context);
        }
    }
}

#[test]
fn dsv4_hc_post_equals_plain_rust() {
    for (width, streams, tokens) in [(1, 1, 1), (5, 4, 3), (33, 3, 2)] {
        for layout in Layout::ALL {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 3);
            let sample = |shape, seed| lab.operand(&Array::sample(shape, seed, -2.0, 2.0), DType::F32, layout);
            let (tx, x) = sample(ne([width, tokens]), 1);
            let (tr, residual) = sample(ne([width, streams, tokens]), 2);
            let (tp, post) = sample(ne([streams, tokens]), 3);
            let (tc, comb) = sample(ne([streams, streams, tokens]), 4);
            let outputs =
                [ctx.dsv4_hc_post(tx, tr, tp, Some(tc)).unwrap(), ctx.dsv4_hc_post(tx, tr, tp, None).unwrap()];
            let got = lab.run_all(&outputs).unwrap();
            let fed = |comb: &dyn Fn([usize; 4]) -> f64| {
                Array::of(ne([width, streams, tokens]), |[i, to, t, _]| {
                    let mixed: f64 =
                        (0..streams).map(|from| residual.at([i, from, t, 0]) * comb([to, from, t, 0])).sum();
                    x.at([i, t, 0, 0]) * post.at([to, t, 0, 0]) + mixed
                })
            };
            let context = format!("{width} {streams} {tokens} {layout:?}");
            assert_close(&got[0], &fed(&|i| comb.at(i)), 1e-5, &context);
            assert_close(&got[1], &fed(&|[to, from, ..]| f64::from(to == from)), 1e-5, &context);
        }
    }
}

#[test]
fn dsv4_hc_comb_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let comb = |mixes, scale, base, eps, n| ctx.dsv4_hc_comb(mixes, scale, base, eps, n);
    let (mixes, scale, base) = (f32s([24, 5, 1, 1]), f32s([3, 1, 1, 1]), f32s([24, 1, 1, 1]));
    assert!(comb(mixes, scale, base, 0.0, 1).is_ok());
    for shape in [[23, 5, 1, 1], [15, 5, 1, 1], [24, 5, 2, 1], [24, 5, 1, 2]] {
        refused!(Shape, comb(f32s(shape), scale, base, 0.0, 1), "{shape:?}");
    }
    for shape in [[2, 1, 1, 1], [3, 2, 1, 1], [3, 1, 2, 1]] {
        refused!(Shape, comb(mixes, f32s(shape), base, 0.0, 1), "{shape:?}");
    }
    for shape in [[23, 1, 1, 1], [25, 1, 1, 1], [24, 2, 1, 1]] {
        refused!(Shape, comb(mixes, scale, f32s(shape), 0.0, 1), "{shape:?}");
    }
    refused!(Param, comb(mixes, scale, base, f32::NAN, 1));
    refused!(Param, comb(mixes, scale, base, 0.0, 0));
    refused!(Param, comb(mixes, scale, base, 0.0, -1));
    refused!(DType, comb(of(DType::F16, [24, 5, 1, 1]), scale, base, 0.0, 1));
    refused!(DType, comb(mixes, of(DType::F16, [3, 1, 1, 1]), base, 0.0, 1));
    refused!(DType, comb(mixes, scale, of(DType::F16, [24, 1, 1, 1]), 0.0, 1));
}

#[test]
fn dsv4_hc_pre_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (x, weights) = (f32s([7, 4, 5, 1]), f32s([4, 5, 1, 1]));
    assert!(ctx.dsv4_hc_pre(x, weights).is_ok());
    refused!(Shape, ctx.dsv4_hc_pre(f32s([7, 4, 5, 2]), weights));
    for shape in [[3, 5, 1, 1], [4, 4, 1, 1], [4, 6, 1, 1], [4, 5, 2, 1], [4, 5, 1, 2]] {
        refused!(Shape, ctx.dsv4_hc_pre(x, f32s(shape)), "{shape:?}");
    }
    refused!(DType, ctx.dsv4_hc_pre(of(DType::F16, [7, 4, 5, 1]), weights));
    refused!(DType, ctx.dsv4_hc_pre(x, of(DType::F16, [4, 5, 1, 1])));

    assert!(ctx.dsv4_hc_pre_gated(x, x, 1.0).is_ok());
    for shape in [[6, 4, 5, 1], [7, 3, 5, 1], [7, 4, 4, 1], [7, 4, 5, 2]] {
        refused!(Shape, ctx.dsv4_hc_pre_gated(x, f32s(shape), 1.0), "{shape:?}");
    }
    refused!(Shape, ctx.dsv4_hc_pre_gated(f32s([7, 4, 5, 2]), f32s([7, 4, 5, 2]), 1.0));
    refused!(Param, ctx.dsv4_hc_pre_gated(x, x, f32::INFINITY));
    refused!(DType, ctx.dsv4_hc_pre_gated(x, of(DType::F16, [7, 4, 5, 1]), 1.0));
}

#[test]
fn dsv4_hc_post_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (one, comb) = (f32s([7, 5, 1, 1]), f32s([4, 4, 5, 1]));
    let (x, weights) = (f32s([7, 4, 5, 1]), f32s([4, 5, 1, 1]));
    assert!(ctx.dsv4_hc_post(one, x, weights, Some(comb)).is_ok());
    for shape in [[6, 5, 1, 1], [7, 4, 1, 1], [7, 5, 2, 1], [7, 5, 1, 2]] {
        refused!(Shape, ctx.dsv4_hc_post(f32s(shape), x, weights, None), "{shape:?}");
    }
    refused!(Shape, ctx.dsv4_hc_post(one, f32s([7, 4, 5, 2]), weights, None));
    refused!(Shape, ctx.dsv4_hc_post(one, f32s([7, 3, 5, 1]), weights, None));
    for shape in [[3, 5, 1, 1], [4, 4, 1, 1], [4, 5, 2, 1], [4, 5, 1, 2]] {
        refused!(Shape, ctx.dsv4_hc_post(one, x, f32s(shape), None), "{shape:?}");
    }
    for shape in [[3, 4, 5, 1], [4, 3, 5, 1], [4, 4, 4, 1], [4, 4, 5, 2]] {
        refused!(Shape, ctx.dsv4_hc_post(one, x, weights, Some(f32s(shape))), "{shape:?}");
    }
    for [a, b, c, d] in [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] {
        let of = |half, shape| of(if half == 1 { DType::F16 } else { DType::F32 }, shape);
        let (one, x) = (of(a, [7, 5, 1, 1]), of(b, [7, 4, 5, 1]));
        let (weights, comb) = (of(c, [4, 5, 1, 1]), of(d, [4, 4, 5, 1]));
        refused!(DType, ctx.dsv4_hc_post(one, x, weights, Some(comb)));
    }
}
