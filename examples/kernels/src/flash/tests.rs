//! Attention by each instruction set of this processor, against plain sums in f64, and against ggml's.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "small numbers")]

use ggml::{Backend, Context, DType, Quantize as _, Sched, ops::FlashAttnOptions};
use half::f16;

use super::flash_attn_ext_at;
use crate::matmul::Level;
use crate::matmul::set::choice::tests::levels;
use crate::tests::{close, compute, dot, random};

/// Operands, and how they are used.
#[derive(Clone)]
struct Case {
    dtype: DType,
    /// Of keys and of values.
    sizes: [usize; 2],
    /// Of queries and of keys.
    heads: [usize; 2],
    tokens: usize,
    cells: usize,
    batches: usize,
    cap: f32,
    threads: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// Those of each token, in each batch.
    mask: Option<Vec<f16>>,
    sinks: Option<Vec<f32>>,
}

const SCALE: f32 = 0.4;

impl Case {
    /// Random numbers, as `dtype` rounds them.
    fn new(rng: &mut fastrand::Rng, dtype: DType, sizes: [usize; 2], heads: [usize; 2], shape: [usize; 3]) -> Self {
        let [tokens, cells, batches] = shape;
        let mut rounded = |size: usize| {
            let x = random(rng, size * heads[1] * cells * batches);
            dtype.dequantize(&dtype.quantize(&x, size, None).unwrap()).unwrap()
        };
        let (k, v) = (rounded(sizes[0]), rounded(sizes[1]));
        let q = random(rng, sizes[0] * tokens * heads[0] * batches).iter().map(|x| 3.0 * x).collect();
        let (mask, sinks, cap, threads) = (None, None, 0.0, 1);
        Self { dtype, sizes, heads, tokens, cells, batches, cap, threads, q, k, v, mask, sinks }
    }

    /// With a mask that `sees` makes of a token and a cell, for each batch.
    fn masked(mut self, mut sees: impl FnMut(usize, usize) -> bool) -> Self {
        let (tokens, cells) = (self.tokens, self.cells);
        let all = (0..self.batches * tokens * cells).map(|i| (i / cells % tokens, i % cells));
        self.mask = Some(all.map(|(t, c)| if sees(t, c) { f16::ZERO } else { f16::NEG_INFINITY }).collect());
        self
    }

    fn compute(&self, level: Level) -> Vec<f32> {
        let Self { dtype, sizes, heads, tokens, cells, batches, .. } = *self;
        let ctx = Context::new();
        let q = ctx.input("q", DType::F32, [sizes[0], tokens, heads[0], batches]).unwrap();
        // As in a cache: all heads of a cell lie together.
        let kv = |name, size| ctx.input(name, dtype, [size, heads[1], cells, batches]).unwrap();
        let (k, v) = (kv("k", sizes[0]), kv("v", sizes[1]));
        let by_head = |t| ctx.permute(t, [0, 2, 1, 3]).unwrap();
        let mask = self.mask.as_ref().map(|_| ctx.input("mask", DType::F16, [cells, tokens, 1, batches]).unwrap());
        let sinks = self.sinks.as_ref().map(|_| ctx.input("sinks", DType::F32, [heads[0]]).unwrap());
        let options = FlashAttnOptions::new(SCALE).with_mask(mask).with_sinks(sinks).with_logit_softcap(self.cap);
        let out = flash_attn_ext_at(level, &ctx, [q, by_head(k), by_head(v)], options).unwrap();
        assert_eq!(out.ne(), [sizes[1], heads[0], tokens, batches].map(|n| n as i64));
        let graph = ctx.graph([out]).unwrap();
        let mut cpu = Backend::cpu().unwrap();
        cpu.set_threads(self.threads).unwrap();
        let mut sched = Sched::builder().backend(cpu).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(q, &self.q).unwrap();
        run.set_bytes(k, &dtype.quantize(&self.k, sizes[0], None).unwrap()).unwrap();
        run.set_bytes(v, &dtype.quantize(&self.v, sizes[1], None).unwrap()).unwrap();
        if let (Some(t), Some(mask)) = (mask, &self.mask) {
            run.set(t, mask).unwrap();
        }
        if let (Some(t), Some(sinks)) = (sinks, &self.sinks) {
            run.set(t, sinks).unwrap();
        }
        run.compute().unwrap();
        run.get::<f32>(out).unwrap()
    }

    /// The results of a head and a token in a batch, by definition.
    fn expected(&self, [head, token, batch]: [usize; 3]) -> Vec<f64> {
        let Self { sizes: [size, v_size], heads: [heads, k_heads], tokens, cells, .. } = *self;
        let kv_head = head / (heads / k_heads);
        let query = &self.q[((batch * heads + head) * tokens + token) * size..][..size];
        let row = |cell: usize| (batch * cells + cell) * k_heads + kv_head;
        let added =
            |cell: usize| self.mask.as_deref().map_or(0.0, |m| m[(batch * tokens + token) * cells + cell].to_f64());
        let mut scores: Vec<_> = (0..cells)
            .filter(|&cell| added(cell) != f64::NEG_INFINITY)
            .map(|cell| {
                let key = &self.k[row(cell) * size..][..size];
                let score = f64::from(SCALE) * dot(query, key);
                let cap = f64::from(self.cap);
                (cell, added(cell) + if cap == 0.0 { score } else { cap * (score / cap).tanh() })
            })
            .collect();
        let sink = self.sinks.as_ref().map(|sinks| f64::from(sinks[head]));
        let most = scores.iter().map(|(_, s)| *s).chain(sink).fold(f64::NEG_INFINITY, f64::max);
        for (_, s) in &mut scores {
            *s = (*s - most).exp();
        }
        let total = scores.iter().map(|(_, s)| s).sum::<f64>() + sink.map_or(0.0, |s| (s - most).exp());
        let value = |i: usize| {
            let sum = scores.iter().map(|&(cell, s)| s * f64::from(self.v[row(cell) * v_size + i])).sum::<f64>();
            if total == 0.0 { 0.0 } else { sum / total }
        };
        (0..v_size).map(value).collect()
    }

    /// Compares all results of each set with the definition.
    fn check(&self, what: &str) {
        for level in levels() {
            let found = self.compute(level);
            for (i, found) in found.chunks_exact(self.sizes[1]).enumerate() {
                let (head, rest) = (i % self.heads[0], i / self.heads[0]);
                let at = [head, rest % self.tokens, rest / self.tokens];
                for (found, expected) in found.iter().zip(self.expected(at)) {
                    let close = (f64::from(*found) - expected).abs() <= 2e-5;
                    assert!(close, "{found} for {expected}: {level:?} {what}, head, token, batch {at:?}");
                }
            }
        }
    }
}

/// Tokens are the last of so many cells, and see themselves and what is before.
fn causal(tokens: usize, cells: usize) -> impl Fn(usize, usize) -> bool + Copy {
    move |token, cell| cell + tokens <= cells + token
}

#[test]
fn types_sizes_and_heads_that_share_keys() {
    let mut rng = fastrand::Rng::with_seed(21);
    let shapes = [
        ([64, 64], [4, 2], [7, 40, 1], 1),
        ([32, 96], [6, 2], [130, 300, 1], 2),
        ([96, 32], [3, 3], [33, 129, 2], 3),
        ([128, 128], [8, 1], [20, 256, 1], 3),
        ([32, 32], [2, 1], [1, 1, 1], 2),
    ];
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        for (sizes, heads, shape, threads) in shapes {
            let case = Case { threads, ..Case::new(&mut rng, dtype, sizes, heads, shape) };
            let what = format!("{dtype} {sizes:?} {heads:?} {shape:?}");
            case.check(&what);
            let [tokens, cells, _] = shape;
            case.masked(causal(tokens, cells)).check(&format!("causal {what}"));
        }
    }
    // Sizes that are no multiple of 32.
    let case = Case::new(&mut rng, DType::F16, [80, 48], [4, 4], [40, 150, 1]);
    case.masked(causal(40, 150)).check("of 80 and 48");
}

#[test]
fn windows_sequences_sinks_and_caps() {
    let mut rng = fastrand::Rng::with_seed(22);
    let (tokens, cells) = (70, 400);
    let sinks = Some(vec![0.5, -40.0, 3.0, 60.0]);
    for (sinks, cap) in [(None, 0.0), (None, 2.0), (sinks.clone(), 0.0), (sinks, 5.0)] {
        let case = Case::new(&mut rng, DType::F16, [64, 64], [4, 2], [tokens, cells, 1]);
        let case = Case { sinks, cap, threads: 2, ..case };
        let what = format!("sinks {:?}, cap {cap}", case.sinks);
        case.check(&what);
        let sees = causal(tokens, cells);
        case.clone().masked(|t, c| sees(t, c) && c + 60 > cells - tokens + t).check(&format!("window, {what}"));
        // Each third token is of another sequence, and sees each third cell.
        case.clone().masked(|t, c| t % 3 == c % 3).check(&format!("sequences, {what}"));
        // Some tokens see nothing; their results are zeros.
        case.clone().masked(|t, c| t % 4 != 0 && (t + c) % 5 != 0).check(&format!("hidden, {what}"));
        let mut slopes = case.masked(sees);
        for x in slopes.mask.iter_mut().flatten().filter(|x| **x == f16::ZERO) {
            *x = f16::from_f32(-rng.f32());
        }
        slopes.check(&format!("numbers in the mask, {what}"));
    }
}

/// Cells that a token doesn't see may have anything, and a NaN stays in the rows of its token.
#[test]
fn what_is_hidden_does_not_matter_and_nan_stays_in_its_row() {
    let mut rng = fastrand::Rng::with_seed(23);
    let (tokens, cells) = (66, 300);
    let case = Case::new(&mut rng, DType::F32, [32, 64], [2, 1], [tokens, cells, 1]);
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        // A cell that no token sees, and one that only the last token sees.
        let mut case = case.clone().masked(|t, c| c != 100 && (c != 200 || t == tokens - 1));
        let usual = levels().map(|level| case.compute(level)).collect::<Vec<_>>();
        for cell in [100, 200] {
            case.v[cell * 64 + 5] = odd;
        }
        case.k[100 * 32 + 3] = odd; // that of the other might make its score negative infinity, which hides it
        case.q[32 * 10] = f32::NAN;
        for (level, usual) in levels().zip(usual) {
            let found = case.compute(level);
            for (i, (found, usual)) in found.chunks_exact(64).zip(usual.chunks_exact(64)).enumerate() {
                let (head, token) = (i % 2, i / 2);
                if token == tokens - 1 {
                    assert!(!found[5].is_finite(), "{level:?} {odd}");
                } else if [head, token] == [0, 10] {
                    assert!(found.iter().all(|x| x.is_nan()), "{level:?} {odd}");
                } else {
                    let close = found.iter().zip(usual).all(|(a, b)| (a - b).abs() < 1e-5);
                    assert!(close, "{level:?} {odd}: head {head} of token {token}");
                }
            }
        }
    }
}

/// Queries, keys and values as one product makes them, of sentences that have ends, one of which is masked as a whole. Tasks share heads,
/// and of many sentences these.
#[test]
fn views_of_one_tensor() {
    let mut rng = fastrand::Rng::with_seed(25);
    let (size, heads) = (32_usize, 3_usize);
    let width = size * heads;
    for (tokens, lengths) in [(40, vec![40, 1, 0, 33]), (9, [9, 0, 5].repeat(6))] {
        let x = random(&mut rng, 3 * width * tokens * lengths.len());
        let hides = |n: usize, i: usize| if i % tokens < n { f16::ZERO } else { f16::NEG_INFINITY };
        let mask = lengths.iter().flat_map(|&n| (0..tokens * tokens).map(move |i| hides(n, i)));
        let mask: Vec<_> = mask.collect();
        for (level, threads, scale) in levels().flat_map(|level| [(level, 1, 0.7_f32), (level, 4, -2.5)]) {
            let ctx = Context::new();
            let qkv = ctx.input("qkv", DType::F32, [3 * width, tokens, lengths.len()]).unwrap();
            let mask_in = ctx.input("mask", DType::F16, [tokens, tokens, 1, lengths.len()]).unwrap();
            let part = |i: usize| {
                let shape = [size, tokens, heads, lengths.len()].map(|n| n as i64);
                let strides = [3 * width, size, 3 * width * tokens].map(|n| n * size_of::<f32>());
                ctx.view(qkv, shape, strides, i * width * size_of::<f32>()).unwrap()
            };
            let options = FlashAttnOptions::new(scale).with_mask(mask_in);
            let out = flash_attn_ext_at(level, &ctx, [0, 1, 2].map(part), options).unwrap();
            let found = compute(&ctx, threads, out, &[(qkv, &x)], Some((mask_in, &mask)));
            let all = found.chunks(width * tokens).zip(x.chunks(3 * width * tokens)).zip(&lengths);
            for (sentence, ((found, x), &length)) in all.enumerate() {
                let rows: Vec<_> = x.chunks(3 * width).collect();
                for (i, found) in found.chunks(size).enumerate() {
                    let head = i % heads;
                    let expected = attended(&rows, [i / heads, length], |i| i * width + head * size, size, scale);
                    close(found, &expected, 2e-5, &format!("{level:?} {scale}: sentence {sentence}, head {head}"));
                }
            }
        }
    }
}

/// What a token of so many attends to; `at` says where rows have its query, keys and values.
fn attended(
    rows: &[&[f32]],
    [token, length]: [usize; 2],
    at: impl Fn(usize) -> usize,
    size: usize,
    scale: f32,
) -> Vec<f64> {
    let part = |row: usize, i: usize| &rows[row][at(i)..][..size];
    let score = |other| (f64::from(scale) * dot(part(token, 0), part(other, 1))).exp();
    let weights: Vec<_> = (0..length).map(score).collect();
    let total = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let value = |i: usize| weights.iter().enumerate().map(|(row, w)| f64::from(part(row, 2)[i]) * w / total).sum();
    (0..size).map(value).collect()
}

/// The difference from ggml's is that of its rounding to `f16`.
#[test]
fn results_are_ggmls_but_for_rounding() {
    let mut rng = fastrand::Rng::with_seed(24);
    // It rounds queries to the type of the keys, and of few tokens the sums to `f16`.
    let cases = [(DType::F16, 5, 0.01), (DType::F16, 100, 1e-4), (DType::Q8_0, 70, 0.02), (DType::F32, 64, 1e-4)];
    for (dtype, tokens, allowed) in cases {
        let case = Case::new(&mut rng, dtype, [64, 64], [4, 2], [tokens, 256, 1]).masked(causal(tokens, 256));
        let theirs = case.compute(Level::None);
        for level in levels() {
            for (ours, theirs) in case.compute(level).iter().zip(&theirs) {
                assert!((ours - theirs).abs() < allowed, "{ours}, {theirs}: {level:?} {dtype} {tokens}");
            }
        }
    }
}

/// What isn't computed here is left to ggml.
#[test]
fn slopes_and_odd_sizes_are_ggmls() {
    let ctx = Context::new();
    let input = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let [q, k] = [input([16, 70, 2, 1]), input([16, 128, 2, 1])];
    let mask = ctx.input("mask", DType::F16, [128, 70]).unwrap();
    let ours = |q, k, options| super::fits([q, k, k], &options);
    let options = FlashAttnOptions::new(1.0).with_mask(mask);
    assert!(ours(q, k, options));
    assert!(!ours(q, k, options.with_max_bias(8.0)));
    assert!(!ours(q, k, FlashAttnOptions::new(1.0).with_mask(ctx.input("m", DType::F16, [128, 70, 2]).unwrap())));
    assert!(!ours(input([24, 70, 2, 1]), input([24, 128, 2, 1]), FlashAttnOptions::new(1.0)));
    assert!(!ours(input([16, 70, 3, 1]), k, FlashAttnOptions::new(1.0)));
    let made = super::flash_attn_ext(&ctx, [q, input([24, 128, 2, 1]), k], FlashAttnOptions::new(1.0));
    assert!(made.is_err(), "ggml says that sizes differ");
}
