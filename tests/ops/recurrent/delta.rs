//! The gated delta rule.

use ggml::prelude::*;
use ggml::{Result, ops::GatedDeltaNetOperands};

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// Queries, keys, values, gates, betas, states.
type Operands<T> = [T; 6];

fn build<'c>(ctx: &'c Context, [q, k, v, g, beta, state]: Operands<Tensor<'c>>, n: i64) -> Result<Tensor<'c>> {
    ctx.gated_delta_net(GatedDeltaNetOperands { q, k, v, g, beta, state }, n)
}

/// Outputs, then the states after the last tokens, then those before, and so on.
fn reference([q, k, v, g, beta, state]: &Operands<Array>, snapshots: usize) -> Array {
    let [size, heads, tokens, sequences] = v.ne;
    let mut outputs = Array::of(v.ne, |_| 0.0);
    let mut states = vec![Array::of(state.ne, |_| 0.0); snapshots];
    for sequence in 0..sequences {
        for head in 0..heads {
            // Element `[key, value]`.
            let mut s = Array::of(ne([size, size]), |[i, j, ..]| state.at([i, j, head, sequence]));
            for token in 0..tokens {
                let of_qk = |a: &Array, i| a.at([i, head % q.ne[1], token, sequence]);
                let rest = |i: usize| g.at([i % g.ne[0], head, token, sequence]).exp();
                s = Array::of(s.ne, |[i, j, ..]| s.at([i, j, 0, 0]) * rest(i));
                let found = |a: &Array, s: &Array, j| (0..size).map(|i| s.at([i, j, 0, 0]) * of_qk(a, i)).sum::<f64>();
                let missing: Vec<_> = (0..size).map(|j| v.at([j, head, token, sequence]) - found(k, &s, j)).collect();
                let rate = beta.at([0, head, token, sequence]);
                s = Array::of(s.ne, |[i, j, ..]| s.at([i, j, 0, 0]) + of_qk(k, i) * rate * missing[j]);
                for j in 0..size {
                    let at = outputs.position([j, head, token, sequence]);
                    outputs.data[at] = found(q, &s, j) / (size as f64).sqrt();
                }
                if let Some(snapshot) = states.get_mut(tokens - 1 - token) {
                    let at = snapshot.position([0, 0, head, sequence]);
                    snapshot.data[at..][..size * size].copy_from_slice(&s.data);
                }
            }
        }
    }
    let data: Vec<_> = outputs.data.into_iter().chain(states.into_iter().flat_map(|s| s.data)).collect();
    Array { ne: ne([size * heads, data.len() / (size * heads)]), data }
}

#[test]
fn gated_delta_net_equals_plain_rust() {
    for (size, qk_heads, heads, tokens, sequences) in
        [(1, 1, 1, 1, 1), (7, 2, 6, 4, 3), (32, 3, 3, 5, 2), (64, 1, 2, 3, 1)]
    {
        for (per_key, layout, threads) in [
            (false, Layout::Plain, 1),
            (true, Layout::Gaps, 2),
            (true, Layout::Swapped, 5),
            (false, Layout::Swapped, 2),
        ] {
            for snapshots in [1, 2, tokens].into_iter().filter(|&n| n <= tokens) {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let sample = |shape, seed, from, to, layout| {
                    lab.operand(&Array::sample(shape, seed, from, to), DType::F32, layout)
                };
                let each = |n| [n, heads, tokens, sequences];
                let qk = [size, qk_heads, tokens, sequences];
                let operands = [
                    sample(qk, 1, -0.5, 0.5, layout),
                    sample(qk, 2, -0.5, 0.5, layout),
                    sample(each(size), 3, -1.0, 1.0, layout),
                    sample(each(if per_key { size } else { 1 }), 4, -1.0, -0.1, Layout::Plain),
                    sample(each(1), 5, 0.1, 0.9, Layout::Plain),
                    sample([size, size, heads, sequences], 6, -1.0, 1.0, Layout::Plain),
                ];
                let tensors = operands.each_ref().map(|(t, _)| *t);
                let got = lab.run(build(&ctx, tensors, snapshots as i64).unwrap()).unwrap();
                let want = reference(&operands.map(|(_, a)| a), snapshots);
                let context =
                    format!("{size} {qk_heads} {heads} {tokens} {sequences} {per_key} {layout:?} {snapshots}");
                assert_close(&got, &want, 1e-4, &context);
            }
        }
    }
}

/// C compares only the state and the gates' first dimension with the values.
#[test]
fn h18_gated_delta_net_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let shapes = [[8, 2, 5, 3], [8, 2, 5, 3], [8, 4, 5, 3], [1, 4, 5, 3], [1, 4, 5, 3], [8, 8, 4, 3]];
    let with = |n: usize, t| {
        let mut operands = shapes.map(f32s);
        operands[n] = t;
        build(&ctx, operands, 1)
    };
    assert!(with(0, f32s(shapes[0])).is_ok());
    assert!(with(3, f32s(shapes[2])).is_ok());
    for (n, shape) in shapes.into_iter().enumerate() {
        refused!(DType, with(n, of(DType::F16, shape)), "{n}");
        for dim in 0..4 {
            for change in [-1, 1, shape[dim]] {
                let mut other = shape;
                other[dim] += change;
                if other[dim] > 0 {
                    refused!(Shape, with(n, f32s(other)), "{n} {other:?}");
                }
            }
        }
        // Transposed operands; for gates and states also with the second and third dimension swapped.
        let [n0, n1, n2, n3] = shape;
        if n0 > 1 {
            refused!(Shape, with(n, ctx.transpose(f32s([n1, n0, n2, n3])).unwrap()), "{n}");
        }
        if n > 2 {
            refused!(Shape, with(n, ctx.permute(f32s([n0, n2, n1, n3]), [0, 2, 1, 3]).unwrap()), "{n}");
        }
    }
    let mut both = shapes.map(f32s);
    (both[0], both[1]) = (f32s([8, 3, 5, 3]), f32s([8, 3, 5, 3]));
    refused!(Shape, build(&ctx, both, 1), "three heads for four");
}

/// The kernel would not write more states than there are tokens.
#[test]
fn gated_delta_net_refuses_more_states_than_tokens() {
    let ctx = Context::new();
    let f32s = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let operands = [[8, 2, 5, 3], [8, 2, 5, 3], [8, 4, 5, 3], [1, 4, 5, 3], [1, 4, 5, 3], [8, 8, 4, 3]].map(f32s);
    assert!(build(&ctx, operands, 5).is_ok());
    for n in [0, -1, 6, 1 << 32, (1 << 32) + 1, i64::MAX] {
        refused!(Param, build(&ctx, operands, n), "{n}");
    }
}

/// The kernel scales a state as one row, whose elements it counts in 32 bits.
#[test]
fn h18_gated_delta_net_refuses_states_beyond_32_bits() {
    let ctx = Context::new();
    let f32s = |shape: [i64; 2]| ctx.input("x", DType::F32, shape).unwrap();
    let (x, one, state) = (f32s([46_341, 1]), f32s([1, 1]), f32s([46_341, 46_341]));
    refused!(Unsupported, Lab::new(&ctx).accepted(build(&ctx, [x, x, x, one, one, state], 1).unwrap()));
}
