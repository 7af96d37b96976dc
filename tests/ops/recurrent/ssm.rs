//! State space models.

use ggml::prelude::*;
use ggml::{Result, ops::SsmScanOperands};

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

#[test]
fn ssm_conv_equals_plain_rust() {
    for (d_conv, channels, tokens, sequences) in [(1, 1, 1, 1), (4, 5, 1, 3), (3, 8, 6, 2)] {
        for threads in [1, 2, 9] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (tx, x) = lab.plain(&Array::sample(ne([d_conv - 1 + tokens, channels, sequences]), 1, -1.0, 1.0));
            let (tc, c) = lab.plain(&Array::sample(ne([d_conv, channels]), 2, -1.0, 1.0));
            let got = lab.run(ctx.ssm_conv(tx, tc).unwrap()).unwrap();
            let want = Array::of(ne([channels, tokens, sequences]), |[channel, token, sequence, _]| {
                (0..d_conv).map(|i| x.at([token + i, channel, sequence, 0]) * c.at([i, channel, 0, 0])).sum()
            });
            assert_close(&got, &want, 1e-5, &format!("{d_conv} {channels} {tokens} {sequences} {threads}"));
        }
    }
}

#[test]
fn ssm_conv_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (x, c) = (f32s([6, 5, 2, 1]), f32s([4, 5, 1, 1]));
    lab.accepted(ctx.ssm_conv(x, c).unwrap()).unwrap();
    for shape in [[3, 5, 2, 1], [6, 4, 2, 1], [6, 6, 2, 1], [6, 5, 2, 2]] {
        refused!(Shape, ctx.ssm_conv(f32s(shape), c), "{shape:?}");
    }
    for shape in [[7, 5, 1, 1], [4, 4, 1, 1], [4, 5, 2, 1], [4, 5, 1, 2]] {
        refused!(Shape, ctx.ssm_conv(x, f32s(shape)), "{shape:?}");
    }
    refused!(DType, ctx.ssm_conv(of(DType::F16, [6, 5, 2, 1]), c));
    refused!(DType, ctx.ssm_conv(x, of(DType::I32, [4, 5, 1, 1])));
    let across = |[n0, n1]: [i64; 2]| ctx.transpose(f32s([n1, n0, 1, 1])).unwrap();
    let apart =
        |[n0, n1]: [i64; 2]| ctx.view(f32s([n0 + 1, n1, 1, 1]), [n0, n1], [4 * (n0 as usize + 1); 3], 0).unwrap();
    for (x, c) in [(across([6, 5]), c), (apart([6, 5]), c), (x, across([4, 5])), (x, apart([4, 5]))] {
        refused!(Unsupported, lab.accepted(ctx.ssm_conv(x, c).unwrap()), "{:?} {:?}", x.nb(), c.nb());
    }
    // The count of a sequence's elements overflows.
    refused!(
        Unsupported,
        lab.accepted(ctx.ssm_conv(f32s([1 << 16, 1 << 15, 1, 1]), f32s([1, 1 << 15, 1, 1])).unwrap())
    );
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    d_state: usize,
    size: usize,
    heads: usize,
    groups: usize,
    tokens: usize,
    sequences: usize,
    states: usize,
}

const fn sizes([d_state, size, heads, groups]: [usize; 4], [tokens, sequences, states]: [usize; 3]) -> Sizes {
    Sizes { d_state, size, heads, groups, tokens, sequences, states }
}

/// An operand of `[n0, n1, tokens, sequences]`, with gaps between tokens.
fn among_others<'c>(lab: &Lab<'c>, values: &Array) -> (Tensor<'c>, Array) {
    let [n0, n1, tokens, sequences] = values.ne;
    let around = Array::of(ne([n0 * n1 + 3, tokens, sequences]), |[i, token, sequence, _]| {
        if i < 3 { 1e9 } else { values.at([(i - 3) % n0, (i - 3) / n0, token, sequence]) }
    });
    let (whole, rounded) = lab.plain(&around);
    let [nb0, nb1, nb2, _] = whole.nb();
    let shape = values.ne.map(|n| n as i64);
    let t = lab.ctx.view(whole, shape, [nb0 * n0, nb1, nb2], 3 * nb0).unwrap();
    (t, Array::of(values.ne, |[i, j, token, sequence]| rounded.at([3 + i + n0 * j, token, sequence, 0])))
}

/// Outputs, then the states after the last tokens, then those before, and so on: operands as `SsmScanOperands` lists them.
fn scan([s, x, dt, a, b, c, ids]: &[Array; 7], snapshots: usize) -> Vec<f64> {
    let ([size, heads, tokens, sequences], [d_state, groups, ..]) = (x.ne, b.ne);
    let mut outputs = Array::of(x.ne, |_| 0.0);
    let mut states = vec![Array::of([d_state, size, heads, sequences], |_| 0.0); snapshots];
    for sequence in 0..sequences {
        for head in 0..heads {
            let group = head / (heads / groups);
            for i in 0..size {
                let first = ids.data[sequence] as usize;
                let mut state: Vec<_> = (0..d_state).map(|n| s.at([n, i, head, first])).collect();
                for token in 0..tokens {
                    let step = dt.at([head, token, sequence, 0]).exp().ln_1p();
                    let input = step * x.at([i, head, token, sequence]);
                    for (n, s) in state.iter_mut().enumerate() {
                        let decay = (step * a.at([n % a.ne[0], head, 0, 0])).exp();
                        *s = *s * decay + input * b.at([n, group, token, sequence]);
                    }
                    let at = outputs.position([i, head, token, sequence]);
                    let products = state.iter().enumerate().map(|(n, s)| s * c.at([n, group, token, sequence]));
                    outputs.data[at] = products.sum();
                    if let Some(snapshot) = states.get_mut(tokens - 1 - token) {
                        let at = snapshot.position([0, i, head, sequence]);
                        snapshot.data[at..][..d_state].copy_from_slice(&state);
                    }
                }
            }
        }
    }
    outputs.data.into_iter().chain(states.into_iter().flat_map(|s| s.data)).collect()
}

fn build<'c>(ctx: &'c Context, [s, x, dt, a, b, c, ids]: [Tensor<'c>; 7], n: i64) -> Result<Tensor<'c>> {
    ctx.ssm_scan(SsmScanOperands { s, x, dt, a, b, c, ids }, n)
}

#[test]
fn ssm_scan_equals_plain_rust() {
    let all = [
        sizes([1, 1, 1, 1], [1, 1, 1]),
        sizes([16, 1, 6, 1], [5, 2, 4]),
        sizes([70, 3, 4, 2], [3, 3, 3]),
        sizes([128, 2, 3, 3], [4, 2, 1]),
    ];
    for of in all {
        let cases = [(1, 1, false), (1, 2, true), (1, of.tokens, true), (of.d_state, 1, false), (of.d_state, 1, true)];
        for (rates, snapshots, among) in cases {
            if snapshots > of.tokens {
                continue;
            }
            for threads in [1, 3] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let sample = |shape, seed, from, to| Array::sample(shape, seed, from, to);
                let place = |a: &Array| if among { among_others(&lab, a) } else { lab.plain(a) };
                let grouped = [of.d_state, of.groups, of.tokens, of.sequences];
                let ids = sample(ne([of.sequences]), 7, 0.0, of.states as f64).map(f64::floor);
                let operands = [
                    lab.plain(&sample([of.d_state, of.size, of.heads, of.states], 1, -1.0, 1.0)),
                    place(&sample([of.size, of.heads, of.tokens, of.sequences], 2, -1.0, 1.0)),
                    lab.plain(&sample(ne([of.heads, of.tokens, of.sequences]), 3, -2.0, 1.0)),
                    lab.plain(&sample(ne([rates, of.heads]), 4, -1.0, -0.1)),
                    place(&sample(grouped, 5, -1.0, 1.0)),
                    place(&sample(grouped, 6, -1.0, 1.0)),
                    lab.operand(&ids, DType::I32, Layout::Plain),
                ];
                let tensors = operands.each_ref().map(|(t, _)| *t);
                let got = lab.run(build(&ctx, tensors, snapshots as i64).unwrap()).unwrap();
                let want = scan(&operands.map(|(_, a)| a), snapshots);
                let context = format!("{of:?} {rates} {snapshots} {among} {threads}");
                assert_close(&got, &Array { ne: ne([want.len()]), data: want }, 2e-5, &context);
            }
        }
    }
}

/// Of states `[8, 3, 4, 5]`, for 6 tokens of 2 sequences.
const SHAPES: [[i64; 4]; 7] =
    [[8, 3, 4, 5], [3, 4, 6, 2], [4, 6, 2, 1], [1, 4, 1, 1], [8, 2, 6, 2], [8, 2, 6, 2], [2, 1, 1, 1]];

fn input(ctx: &Context, n: usize, shape: [i64; 4]) -> Tensor<'_> {
    ctx.input("x", if n == 6 { DType::I32 } else { DType::F32 }, shape).unwrap()
}

fn inputs(ctx: &Context) -> [Tensor<'_>; 7] {
    std::array::from_fn(|n| input(ctx, n, SHAPES[n]))
}

#[test]
fn h18_ssm_scan_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let with = |n: usize, t| {
        let mut operands = inputs(&ctx);
        operands[n] = t;
        build(&ctx, operands, 1)
    };
    lab.accepted(build(&ctx, inputs(&ctx), 6).unwrap()).unwrap();
    for (n, shape) in SHAPES.into_iter().enumerate() {
        refused!(DType, with(n, ctx.input("x", DType::F16, shape).unwrap()), "{n}");
        for dim in 0..4 {
            let free = (n, dim) == (0, 3); // The number of states is free.
            for change in [-1, 1, shape[dim]] {
                let mut other = shape;
                other[dim] += change;
                if other[dim] > 0 && !free {
                    refused!(Shape, with(n, input(&ctx, n, other)), "{n} {other:?}");
                }
            }
        }
        let [n0, n1, n2, n3] = shape;
        if n != 6 && n0 > 1 {
            refused!(Shape, with(n, ctx.transpose(input(&ctx, n, [n1, n0, n2, n3])).unwrap()), "{n}");
        }
        if n != 6 && n2 > 1 {
            let swapped = ctx.permute(input(&ctx, n, [n0, n2, n1, n3]), [0, 2, 1, 3]).unwrap();
            refused!(Shape, with(n, swapped), "{n}");
        }
    }
    let mut groups = inputs(&ctx);
    (groups[4], groups[5]) = (input(&ctx, 4, [8, 3, 6, 2]), input(&ctx, 5, [8, 3, 6, 2]));
    refused!(Shape, build(&ctx, groups, 1), "three groups of four heads");
    let column = ctx.view(input(&ctx, 6, [3, 2, 1, 1]), [1, 2], [12, 24, 24], 0).unwrap();
    refused!(Unsupported, lab.accepted(with(6, ctx.transpose(column).unwrap()).unwrap()), "with gaps");

    for n in [0, -1, 7, 1 << 32, (1 << 32) + 1, i64::MAX] {
        refused!(Param, build(&ctx, inputs(&ctx), n), "{n}");
    }
    let mut each = inputs(&ctx);
    each[3] = input(&ctx, 3, [8, 4, 1, 1]);
    assert!(build(&ctx, each, 1).is_ok());
    refused!(Param, build(&ctx, each, 2), "rates per element");
}

#[test]
fn h08_ssm_scan_checks_indices_of_states() {
    for bad in [-1, 5, i32::MIN, i32::MAX] {
        let ctx = Context::new();
        let operands = inputs(&ctx);
        let y = build(&ctx, operands, 1).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        for t in &operands[..6] {
            run.set(*t, &vec![0.5_f32; t.elements()]).unwrap();
        }
        refused!(Index, run.set(operands[6], &[0, bad]), "{bad}");
        refused!(InputNotSet, run.compute());
        run.set(operands[6], &[4, 0]).unwrap();
        run.compute().unwrap();
    }
    let ctx = Context::new();
    let mut operands = inputs(&ctx);
    operands[6] = ctx.cont(operands[6]).unwrap();
    refused!(Shape, build(&ctx, operands, 1), "numbers that an operation made");
}

/// The kernel writes new states by the strides of the old ones, even of dimensions of 1, and counts elements in 32
/// bits.
#[test]
fn h10_ssm_scan_refuses_states_with_other_strides() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let mut operands = inputs(&ctx);
    // One state for two sequences; its fourth stride is that of a head.
    let state = ctx.permute(input(&ctx, 0, [8, 3, 1, 4]), [0, 1, 3, 2]).unwrap();
    assert!(state.is_contiguous());
    operands[0] = state;
    refused!(Unsupported, lab.accepted(build(&ctx, operands, 1).unwrap()));

    let f32s = |shape: [i64; 4]| input(&ctx, 0, shape);
    let large = [
        f32s([1 << 11, 1 << 10, 1 << 10, 1]),
        f32s([1 << 10, 1 << 10, 1, 1]),
        f32s([1 << 10, 1, 1, 1]),
        f32s([1, 1 << 10, 1, 1]),
        f32s([1 << 11, 1, 1, 1]),
        f32s([1 << 11, 1, 1, 1]),
        input(&ctx, 6, [1; 4]),
    ];
    refused!(Unsupported, lab.accepted(build(&ctx, large, 1).unwrap()));
}
