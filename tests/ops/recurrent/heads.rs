//! Recurrences with a square state per head and concatenated tokens: RWKV, gated linear attention.

use ggml::prelude::*;
use ggml::{
    Result,
    ops::{GatedLinearAttnOperands, RwkvWkv6Operands, RwkvWkv7Operands},
};

use crate::support::{Array, Lab, assert_close, ne, refused};

/// A recurrence: its builder, from operands of `[size, heads, tokens]`, maybe one of `[size, heads]`, and the state;
/// and its reference for one token of one head.
struct Recurrence {
    name: &'static str,
    /// Bounds of each operand's values; `None` marks the operand of `[size, heads]`.
    operands: &'static [([f64; 2], Kind)],
    build: for<'c> fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>>,
    /// Updates the state, row by row, and returns the output.
    step: fn(&[&[f64]], &mut [f64]) -> Vec<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Token,
    Head,
}

use Kind::{Head, Token};

const RECURRENCES: [Recurrence; 3] = [
    Recurrence {
        name: "rwkv_wkv6",
        operands: &[
            ([-1.0, 1.0], Token),
            ([-1.0, 1.0], Token),
            ([-1.0, 1.0], Token),
            ([-1.0, 1.0], Head),
            ([0.2, 0.9], Token),
        ],
        build: |ctx, x| ctx.rwkv_wkv6(RwkvWkv6Operands { k: x[0], v: x[1], r: x[2], tf: x[3], td: x[4], state: x[5] }),
        step: |x, state| {
            let [k, v, r, tf, td] = [x[0], x[1], x[2], x[3], x[4]];
            let mut out = vec![0.0; v.len()];
            for (i, row) in state.chunks_mut(v.len()).enumerate() {
                for (j, s) in row.iter_mut().enumerate() {
                    out[j] += r[i] * (*s + tf[i] * k[i] * v[j]);
                    *s = td[i] * *s + k[i] * v[j];
                }
            }
            out
        },
    },
    Recurrence {
        name: "gated_linear_attn",
        operands: &[([-1.0, 1.0], Token), ([-1.0, 1.0], Token), ([-1.0, 1.0], Token), ([0.2, 0.9], Token)],
        build: |ctx, x| {
            ctx.gated_linear_attn(GatedLinearAttnOperands { k: x[0], v: x[1], q: x[2], g: x[3], state: x[4] }, 0.7)
        },
        step: |x, state| {
            let [k, v, q, g] = [x[0], x[1], x[2], x[3]];
            let mut out = vec![0.0; v.len()];
            for (i, row) in state.chunks_mut(v.len()).enumerate() {
                for (j, s) in row.iter_mut().enumerate() {
                    *s = g[i] * *s + k[i] * v[j];
                    out[j] += f64::from(0.7_f32) * q[i] * *s;
                }
            }
            out
        },
    },
    Recurrence {
        name: "rwkv_wkv7",
        operands: &[
            ([-1.0, 1.0], Token),
            ([0.2, 0.9], Token),
            ([-1.0, 1.0], Token),
            ([-1.0, 1.0], Token),
            ([-0.2, 0.2], Token),
            ([-0.2, 0.2], Token),
        ],
        build: |ctx, x| {
            ctx.rwkv_wkv7(RwkvWkv7Operands { r: x[0], w: x[1], k: x[2], v: x[3], a: x[4], b: x[5], state: x[6] })
        },
        step: |x, state| {
            let [r, w, k, v, a, b] = [x[0], x[1], x[2], x[3], x[4], x[5]];
            let rows = state.chunks_mut(v.len()).zip(v);
            rows.map(|(row, v)| {
                let found: f64 = row.iter().zip(a).map(|(s, a)| s * a).sum();
                row.iter_mut().enumerate().for_each(|(j, s)| *s = *s * w[j] + v * k[j] + found * b[j]);
                row.iter().zip(r).map(|(s, r)| s * r).sum()
            })
            .collect()
        },
    },
];

impl Recurrence {
    /// Head sizes that the CPU supports, see `h18_…` below.
    fn sizes(&self) -> [usize; 3] {
        if self.name == "rwkv_wkv7" { [64, 128, 64] } else { [1, 7, 64] }
    }

    /// Outputs, then states.
    fn reference(&self, x: &[Array], [size, heads, tokens, sequences]: [usize; 4]) -> Array {
        let mut state = x[self.operands.len()].data.clone();
        let mut outputs = Vec::new();
        for token in 0..tokens {
            let sequence = token / (tokens / sequences);
            for head in 0..heads {
                let of_head: Vec<_> = (self.operands.iter().zip(x))
                    .map(|((_, kind), x)| {
                        let row = if *kind == Token { token * heads + head } else { head };
                        &x.data[row * size..][..size]
                    })
                    .collect();
                let at = (sequence * heads + head) * size * size;
                outputs.extend((self.step)(&of_head, &mut state[at..][..size * size]));
            }
        }
        outputs.extend(state);
        Array { ne: ne([size * heads, tokens + size * sequences]), data: outputs }
    }
}

#[test]
fn wkv_and_gated_linear_attn_equal_plain_rust() {
    for recurrence in RECURRENCES {
        let rest = [(1, 1, 1), (3, 5, 1), (2, 6, 3)];
        for (size, (heads, tokens, sequences)) in recurrence.sizes().into_iter().zip(rest) {
            for threads in [1, 2, 5] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let states = ([-1.0, 1.0], ne([size * size * heads, sequences]));
                let operands = recurrence.operands.iter().map(|&(bounds, kind)| {
                    (bounds, if kind == Token { ne([size, heads, tokens]) } else { ne([size, heads]) })
                });
                let (operands, values): (Vec<_>, Vec<_>) = (operands.chain([states]).zip(1..))
                    .map(|(([from, to], shape), seed)| lab.plain(&Array::sample(shape, seed, from, to)))
                    .unzip();
                let got = lab.run((recurrence.build)(&ctx, &operands).unwrap()).unwrap();
                let want = recurrence.reference(&values, [size, heads, tokens, sequences]);
                let context = format!("{} {size} {heads} {tokens} {sequences} {threads}", recurrence.name);
                assert_close(&got, &want, 1e-4, &context);
            }
        }
    }
}

/// C checks neither types, nor the shape of `tf`, nor that sequences divide tokens; its kernels rely on all three.
#[test]
fn h18_wkv_and_gated_linear_attn_refuse_unsuitable_operands() {
    for Recurrence { name, operands, build, .. } in RECURRENCES {
        let ctx = Context::new();
        let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
        let f32s = |shape| of(DType::F32, shape);
        let shape = |kind| if kind == Token { [64, 3, 6, 1] } else { [64, 3, 1, 1] };
        let state = f32s([64 * 64 * 3, 2, 1, 1]);
        let good: Vec<_> = operands.iter().map(|&(_, kind)| f32s(shape(kind))).chain([state]).collect();
        let with = |n: usize, t| {
            let mut operands = good.clone();
            operands[n] = t;
            build(&ctx, &operands)
        };
        assert!(with(0, good[0]).is_ok(), "{name}");
        for (n, &(_, kind)) in operands.iter().enumerate() {
            let [n0, n1, n2, _] = shape(kind);
            refused!(DType, with(n, of(DType::F16, shape(kind))), "{name} {n}");
            for shape in
                [[n0 - 1, n1, n2, 1], [n0 * 2, n1, n2, 1], [n0, n1 - 1, n2, 1], [n0, n1, n2 + 1, 1], [n0, n1, n2, 2]]
            {
                refused!(Shape, with(n, f32s(shape)), "{name} {n} {shape:?}");
            }
            let across = ctx.transpose(f32s([n1, n0, n2, 1])).unwrap();
            refused!(Shape, with(n, across), "{name} {n}");
        }
        let last = operands.len();
        refused!(DType, with(last, of(DType::F16, [64 * 64 * 3, 2, 1, 1])), "{name}");
        // Four sequences for six tokens; a state too large and too small; seven sequences.
        for (elements, sequences) in
            [(64 * 64 * 3, 4), (64 * 64 * 4, 2), (64 * 64, 2), (64 * 64 * 3, 7), (64 * 64 * 3, 12)]
        {
            refused!(Shape, with(last, f32s([elements, sequences, 1, 1])), "{name} {elements} {sequences}");
        }
        let across = ctx.transpose(f32s([2, 64 * 64 * 3, 1, 1])).unwrap();
        refused!(Shape, with(last, across), "{name}");

        // The count of a state's elements overflows.
        let huge: Vec<_> = operands.iter().map(|_| f32s([1 << 31, 2, 1, 1])).chain([f32s([4, 1, 1, 1])]).collect();
        refused!(Shape, build(&ctx, &huge), "{name}");
    }
}

/// The kernel takes four vectors of elements at a time, and has no code for a remainder.
#[test]
fn h18_rwkv_wkv7_requires_heads_of_whole_vectors() {
    for size in [1, 16, 32, 63, 96, 100] {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [size, 2, 3]).unwrap();
        let state = ctx.input("state", DType::F32, [size * size * 2, 1]).unwrap();
        let y = ctx.rwkv_wkv7(RwkvWkv7Operands { r: x, w: x, k: x, v: x, a: x, b: x, state }).unwrap();
        refused!(Unsupported, Lab::new(&ctx).accepted(y), "{size}");
    }
}
