//! Flash attention. ggml's CPU has three implementations: query by query; in tiles of 64 queries, for 64 and more; with
//! keys split among threads, for one query and 512 keys or more.

use ggml::ops::{FlashAttnOptions, Prec};
use ggml::prelude::*;

use crate::softmax::slope;
use crate::support::{Array, Lab, Layout, assert_close, ne, refused};
use testkit::encode::is_f8;

#[derive(Debug, Clone, Copy)]
struct Sizes {
    size: usize,
    v_size: usize,
    n_kv: usize,
    n_batch: usize,
    heads: usize,
    kv_heads: usize,
    batches: usize,
}

impl Sizes {
    fn q(self) -> [usize; 4] {
        [self.size, self.n_batch, self.heads, self.batches]
    }

    fn k(self) -> [usize; 4] {
        [self.size, self.n_kv, self.kv_heads, self.batches]
    }

    fn v(self) -> [usize; 4] {
        [self.v_size, self.n_kv, self.kv_heads, self.batches]
    }
}

const fn sizes([size, v_size, n_kv, n_batch]: [usize; 4], [heads, kv_heads, batches]: [usize; 3]) -> Sizes {
    Sizes { size, v_size, n_kv, n_batch, heads, kv_heads, batches }
}

/// All implementations, with and without remainders, with and without heads that share keys.
const SIZES: [Sizes; 9] = [
    sizes([1, 1, 1, 1], [1, 1, 1]),
    sizes([8, 8, 5, 1], [2, 2, 1]),
    sizes([40, 24, 7, 3], [6, 2, 2]),
    sizes([128, 128, 33, 2], [3, 1, 1]),
    sizes([64, 64, 70, 64], [2, 1, 1]),
    sizes([80, 72, 65, 67], [2, 2, 2]),
    sizes([7, 3, 130, 65], [3, 3, 1]),
    sizes([64, 64, 513, 1], [4, 2, 1]),
    sizes([5, 9, 600, 1], [3, 1, 1]),
];

/// The options of `FlashAttnOptions` for the reference.
#[derive(Debug, Clone, Copy)]
struct Options<'a> {
    mask: Option<&'a Array>,
    scale: f64,
    max_bias: f64,
    cap: f64,
    sinks: Option<&'a Array>,
}

/// Reference: attention by its definition. If a mask hides all keys, the result is 0.
fn attention(q: &Array, k: &Array, v: &Array, how: Options<'_>) -> Array {
    let ([size, n_batch, heads, batches], [_, n_kv, kv_heads, _]) = (q.ne, k.ne);
    let mut weights = Vec::new();
    Array::of([v.ne[0], heads, n_batch, batches], |[i, head, query, batch]| {
        let kv_head = head / (heads / kv_heads);
        if i == 0 {
            let query_row = &q.data[q.position([0, query, head, batch])..][..size];
            weights = (0..n_kv)
                .map(|key| {
                    let key_row = &k.data[k.position([0, key, kv_head, batch])..][..size];
                    let product: f64 = query_row.iter().zip(key_row).map(|(q, k)| q * k).sum();
                    let score = how.scale * product;
                    let score = if how.cap == 0.0 { score } else { how.cap * (score / how.cap).tanh() };
                    let bias = how.mask.map_or(0.0, |m| m.at([key, query, head % m.ne[2], batch % m.ne[3]]));
                    (score + slope(head, heads, how.max_bias) * bias).exp()
                })
                .collect();
            let sink = how.sinks.map_or(0.0, |s| s.data[head].exp());
            let all = weights.iter().sum::<f64>() + sink;
            for w in &mut weights {
                *w = if all == 0.0 { 0.0 } else { *w / all };
            }
        }
        let column = v.data[v.position([i, 0, kv_head, batch])..].iter().step_by(v.ne[0]);
        weights.iter().zip(column).map(|(w, v)| w * v).sum()
    })
}

/// A mask for these shapes. Each query sees some keys, and the last one none.
fn hiding(shape: [usize; 4]) -> Array {
    let noise = Array::sample(shape, 9, -2.0, 1.0);
    Array::of(shape, |i| {
        let hidden = noise.at(i) < -1.0 || (i[1] + 1 == shape[1] && shape[1] > 1) || i[0] > i[1] + shape[0] / 2;
        if hidden { f64::NEG_INFINITY } else { noise.at(i) }
    })
}

fn inputs(of: Sizes) -> [Array; 3] {
    [(of.q(), 1), (of.k(), 2), (of.v(), 3)].map(|(shape, seed)| Array::sample(shape, seed, -1.5, 1.5))
}

#[test]
fn flash_attn_ext_equals_plain_rust() {
    for of in SIZES {
        let [q, k, v] = inputs(of);
        let masks = [
            None,
            Some(ne([of.n_kv, of.n_batch])),
            Some([of.n_kv, of.n_batch + 3, of.heads, 1]),
            Some([of.n_kv, of.n_batch, 1, of.batches]),
        ];
        for (threads, mask_shape) in [(1, masks[0]), (2, masks[1]), (5, masks[2]), (2, masks[3])] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let [(tq, q), (tk, k), (tv, v)] = [&q, &k, &v].map(|a| lab.plain(a));
            let mask = mask_shape.map(|s| lab.operand(&hiding(s), DType::F16, Layout::Plain));
            let how = FlashAttnOptions::new(0.3).with_mask(mask.as_ref().map(|(t, _)| *t));
            let got = lab.run(ctx.flash_attn_ext(tq, tk, tv, how).unwrap()).unwrap();
            let mask = mask.as_ref().map(|(_, a)| a);
            let want = attention(&q, &k, &v, Options { mask, scale: 0.3, max_bias: 0.0, cap: 0.0, sinks: None });
            assert_close(&got, &want, 2e-5, &format!("{of:?} {threads} {mask_shape:?}"));
        }
    }
}

#[test]
fn flash_attn_ext_options_equal_plain_rust() {
    for of in SIZES {
        let [q, k, v] = inputs(of);
        for (max_bias, cap, with_sinks) in [(8.0, 0.0, false), (0.0, 1.5, false), (0.0, 0.0, true), (4.0, 2.0, true)] {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let [(tq, q), (tk, k), (tv, v)] = [&q, &k, &v].map(|a| lab.plain(a));
            let (mask, of_mask) = lab.operand(&hiding(ne([of.n_kv, of.n_batch])), DType::F16, Layout::Plain);
            let (sinks, of_sinks) = lab.plain(&Array::sample(ne([of.heads]), 6, -1.0, 2.0));
            // The CPU ignores `n_kv_max` and reads all keys.
            let how = FlashAttnOptions::new(0.3)
                .with_mask(mask)
                .with_max_bias(max_bias)
                .with_logit_softcap(cap)
                .with_sinks(with_sinks.then_some(sinks))
                .with_acc(Prec::F32)
                .with_n_kv_max(1);
            let got = lab.run(ctx.flash_attn_ext(tq, tk, tv, how).unwrap()).unwrap();
            let (max_bias, cap) = (max_bias.into(), cap.into());
            let sinks = with_sinks.then_some(&of_sinks);
            let want = attention(&q, &k, &v, Options { mask: Some(&of_mask), scale: 0.3, max_bias, cap, sinks });
            assert_close(&got, &want, 2e-5, &format!("{of:?} {max_bias} {cap} {with_sinks}"));
        }
    }
}

#[test]
fn flash_attn_ext_accepts_many_key_and_value_types() {
    // Tolerance: queries are rounded to the type of the dot product with keys; f16 values are summed in f16.
    let types = [
        (DType::F32, DType::F32, 2e-5),
        (DType::F16, DType::F16, 6e-3),
        (DType::F16, DType::F32, 2e-3),
        (DType::F32, DType::F16, 6e-3),
        (DType::BF16, DType::BF16, 8e-3),
        (DType::Q8_0, DType::Q8_0, 1e-2),
        (DType::Q8_0, DType::F16, 1e-2),
        (DType::F32, DType::Q4_0, 2e-5),
        (DType::Q4_0, DType::Q4_0, 1e-2),
    ];
    let blocks =
        [sizes([32, 64, 9, 3], [4, 2, 2]), sizes([64, 32, 70, 66], [2, 1, 1]), sizes([96, 64, 530, 1], [3, 3, 1])];
    for of in blocks {
        let [q, k, v] = inputs(of);
        for (k_type, v_type, tolerance) in types {
            for layout in Layout::ROWS {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (tq, q) = lab.operand(&q, DType::F32, layout);
                let (tk, k) = lab.operand(&k, k_type, layout);
                let (tv, v) = lab.operand(&v, v_type, layout);
                let how = FlashAttnOptions::new(0.1);
                let got = lab.run(ctx.flash_attn_ext(tq, tk, tv, how).unwrap()).unwrap();
                let none = Options { mask: None, scale: 0.1, max_bias: 0.0, cap: 0.0, sinks: None };
                let want = attention(&q, &k, &v, none);
                assert_close(&got, &want, tolerance, &format!("{of:?} {k_type} {v_type} {layout:?}"));
            }
        }
    }
}

/// C compares few of these dimensions, but its kernels rely on all.
#[test]
fn h09_flash_attn_ext_refuses_unsuitable_shapes() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (q, k, v) = (f32s([8, 3, 4, 2]), f32s([8, 5, 2, 2]), f32s([6, 5, 2, 2]));
    let attend = |q, k, v| ctx.flash_attn_ext(q, k, v, FlashAttnOptions::new(1.0));
    assert!(attend(q, k, v).is_ok());
    for shape in [[7, 5, 2, 2], [9, 5, 2, 2], [8, 5, 3, 2], [8, 5, 8, 2], [8, 5, 2, 1], [8, 5, 2, 4], [8, 4, 2, 2]] {
        refused!(Shape, attend(q, f32s(shape), v), "{shape:?}");
    }
    for shape in [[6, 4, 2, 2], [6, 6, 2, 2], [6, 5, 1, 2], [6, 5, 4, 2], [6, 5, 3, 2], [6, 5, 2, 1], [6, 5, 2, 4]] {
        refused!(Shape, attend(q, k, f32s(shape)), "{shape:?}");
    }
    refused!(DType, attend(of(DType::F16, [8, 3, 4, 2]), k, v));
    refused!(Shape, attend(f32s([1, 1 << 20, 1 << 21, 1]), f32s([1; 4]), f32s([1 << 20, 1, 1, 1])), "too large");

    let masked = |mask| {
        let how = FlashAttnOptions::new(1.0).with_mask(mask);
        ctx.flash_attn_ext(q, k, v, how)
    };
    for shape in [[5, 3, 1, 1], [5, 4, 4, 2], [5, 3, 2, 1]] {
        assert!(masked(of(DType::F16, shape)).is_ok(), "{shape:?}");
    }
    for shape in [[4, 3, 1, 1], [6, 3, 1, 1], [5, 2, 1, 1], [5, 3, 3, 1], [5, 3, 8, 1], [5, 3, 1, 3], [5, 3, 1, 4]] {
        refused!(Shape, masked(of(DType::F16, shape)), "{shape:?}");
    }
    refused!(Shape, masked(ctx.transpose(of(DType::F16, [3, 5, 1, 1])).unwrap()));
    refused!(DType, masked(f32s([5, 3, 1, 1])));

    let sunk = |sinks| {
        let how = FlashAttnOptions::new(1.0).with_sinks(sinks);
        ctx.flash_attn_ext(q, k, v, how)
    };
    assert!(sunk(f32s([4, 1, 1, 1])).is_ok());
    for shape in [[3, 1, 1, 1], [5, 1, 1, 1], [4, 2, 1, 1], [1, 4, 1, 1]] {
        refused!(Shape, sunk(f32s(shape)), "{shape:?}");
    }
    let column = ctx.view(f32s([2, 4, 1, 1]), [1, 4], [8, 32, 32], 0).unwrap();
    refused!(Shape, sunk(ctx.transpose(column).unwrap()), "with gaps");
    refused!(DType, sunk(of(DType::F16, [4, 1, 1, 1])));
}

#[test]
fn flash_attn_ext_refuses_unsuitable_parameters() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 3, 4]).unwrap();
    let mask = ctx.input("mask", DType::F16, [3, 3]).unwrap();
    let with = |how| ctx.flash_attn_ext(x, x, x, how);
    let good = FlashAttnOptions::new(1.0).with_mask(mask);
    for how in [
        FlashAttnOptions::new(f32::NAN).with_mask(mask),
        FlashAttnOptions::new(f32::INFINITY).with_mask(mask),
        good.with_max_bias(-1.0),
        good.with_max_bias(f32::NAN),
        good.with_max_bias(1.0).with_mask(None),
        good.with_logit_softcap(f32::INFINITY),
        good.with_n_kv_max(-1),
        good.with_acc(Prec::Q8),
        good.with_acc(Prec::Q4),
    ] {
        refused!(Param, with(how), "{how:?}");
    }
    assert!(with(good.with_max_bias(1.0).with_n_kv_max(3)).is_ok());
}

/// Types and precisions for which the CPU kernel has no code.
#[test]
fn h14_flash_attn_ext_refuses_types_without_a_dot_product() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype| ctx.input("x", dtype, [256, 8]).unwrap();
    let accepted = |q, k, v, how| lab.accepted(ctx.flash_attn_ext(q, k, v, how).unwrap());
    let float = of(DType::F32);
    for dtype in DType::ALL.iter().copied().filter(|t| t.is_known()) {
        let plain = matches!(dtype, DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64);
        if plain || matches!(dtype, DType::Q8_1 | DType::Q8_K) || is_f8(dtype) {
            refused!(Unsupported, accepted(float, of(dtype), float, FlashAttnOptions::new(1.0)), "keys of {dtype}");
            refused!(Unsupported, accepted(float, float, of(dtype), FlashAttnOptions::new(1.0)), "values of {dtype}");
        } else {
            accepted(float, of(dtype), of(dtype), FlashAttnOptions::new(1.0)).unwrap();
        }
    }
    for acc in [Prec::F16, Prec::BF16] {
        let how = FlashAttnOptions::new(1.0).with_acc(acc);
        refused!(Unsupported, accepted(float, float, float, how), "{acc:?}");
    }
    let square = ctx.input("x", DType::F32, [8, 8]).unwrap();
    let across = ctx.transpose(square).unwrap();
    for (q, k, v) in [(across, square, square), (square, across, square), (square, square, across)] {
        refused!(Unsupported, accepted(q, k, v, FlashAttnOptions::new(1.0)));
    }
}
