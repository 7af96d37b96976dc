//! Flash attention. ggml's CPU has three implementations: query by query; in tiles of 64 queries, for 64 and more; with
//! keys split among threads, for one query and 512 keys or more.

use ggml::ops::{FlashAttnOptions, Prec};
use ggml::prelude::*;

use super::case::{Case, Known, Operand, f32, hiding, of, sized};
use super::draw::Source;
use super::row::Row;
use super::softmax::slope;
use super::{BF16, F16, F32, PLAIN, ROWS};
use crate::array::Array;

const Q8: DType = DType::Q8_0;
const Q4: DType = DType::Q4_0;

/// The options without their tensors.
#[derive(Debug, Clone, Copy)]
struct Attending {
    scale: f32,
    max_bias: f32,
    cap: f32,
    mask: bool,
    sinks: bool,
    acc: Option<Prec>,
    /// The CPU ignores it and reads all keys.
    n_kv_max: i32,
}

const fn scaled(scale: f32) -> Attending {
    Attending { scale, max_bias: 0.0, cap: 0.0, mask: false, sinks: false, acc: None, n_kv_max: 0 }
}

impl Attending {
    /// The options, of operands among which a mask and sinks follow the first three.
    fn options<'c>(self, t: &[Tensor<'c>]) -> FlashAttnOptions<'c> {
        FlashAttnOptions::new(self.scale)
            .with_mask(self.mask.then(|| t[3]))
            .with_max_bias(self.max_bias)
            .with_logit_softcap(self.cap)
            .with_sinks(self.sinks.then(|| t[3 + usize::from(self.mask)]))
            .with_acc(self.acc)
            .with_n_kv_max(self.n_kv_max)
    }

    /// Attention by its definition. If a mask hides all keys, the result is 0.
    fn of_arrays(self, x: &[Array]) -> Array {
        let (q, k, v) = (&x[0], &x[1], &x[2]);
        let ([size, n_batch, heads, batches], [_, n_kv, kv_heads, _]) = (q.ne, k.ne);
        let [scale, max_bias, cap] = [self.scale, self.max_bias, self.cap].map(f64::from);
        let mut weights = Vec::new();
        Array::of([v.ne[0], heads, n_batch, batches], |[i, head, query, batch]| {
            let kv_head = head / (heads / kv_heads);
            if i == 0 {
                let query_row = &q.data[q.position([0, query, head, batch])..][..size];
                let score = |key| {
                    let key_row = &k.data[k.position([0, key, kv_head, batch])..][..size];
                    let score = scale * query_row.iter().zip(key_row).map(|(q, k)| q * k).sum::<f64>();
                    let score = if cap == 0.0 { score } else { cap * (score / cap).tanh() };
                    let bias = |m: &Array| m.at([key, query, head % m.ne[2], batch % m.ne[3]]);
                    score + if self.mask { slope(head, heads, max_bias) * bias(&x[3]) } else { 0.0 }
                };
                weights = (0..n_kv).map(score).collect();
                let sink = self.sinks.then(|| x[3 + usize::from(self.mask)].data[head]);
                let most = weights.iter().chain(&sink).copied().fold(f64::MIN, f64::max);
                for w in &mut weights {
                    *w = (*w - most).exp();
                }
                let all = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - most).exp());
                for w in &mut weights {
                    *w = if all == 0.0 { 0.0 } else { *w / all };
                }
            }
            let column = v.data[v.position([i, 0, kv_head, batch])..].iter().step_by(v.ne[0]);
            weights.iter().zip(column).map(|(w, v)| w * v).sum()
        })
    }

    /// How far a result may be off: by the values' error and that of their weights, which comes from that of the scores.
    fn spread(self, [of_k, of_v]: [DType; 2], x: &[Known]) -> f64 {
        // Scores are divided by the cap, and multiplied by it, in 32 bits.
        if self.cap != 0.0 && !(1e-3..1e6).contains(&self.cap.abs()) {
            return f64::INFINITY;
        }
        let [size, ..] = x[0].values.ne;
        let [(q, eq), (k, ek), (v, ev)] = [0, 1, 2].map(|i| (x[i].largest(), x[i].error));
        // Queries are rounded to the type of the product with keys.
        let rounding = if of_k.is_quantized() { 2e-2 } else { product(of_k) };
        let scores = size as f64 * (q * ek + (k + ek) * (eq + rounding * q));
        let of_others: f64 = x[3..].iter().map(|k| k.error + 2e-7 * k.largest()).sum();
        let off = f64::from(self.scale).abs() * scores + of_others;
        // Values of 16 bits are summed in 16 bits.
        let sum = if of_v == F16 { 5e-4 * x[1].values.ne[1] as f64 + 6e-3 } else { 2e-5 };
        ev + (v + ev) * ((2.0 * off).exp_m1() + sum)
    }
}

fn product(of_k: DType) -> f64 {
    match of_k {
        DType::F32 => 2e-6,
        DType::F16 => 1e-3,
        _ => 1e-2,
    }
}

fn attention(operands: impl IntoIterator<Item = Operand>, how: Attending) -> Case {
    let operands: Vec<_> = operands.into_iter().collect();
    let types = [operands[1].dtype, operands[2].dtype];
    // Queries are rounded to the type of the dot product with keys; f16 values are summed in f16.
    let off = match types {
        [DType::F32, DType::F32 | DType::Q4_0] => 2e-5,
        [DType::F16, DType::F32] => 2e-3,
        [DType::F16 | DType::F32, DType::F16] => 6e-3,
        [DType::BF16, DType::BF16] => 8e-3,
        _ => 1e-2,
    };
    Case::new(operands, move |c, t| c.flash_attn_ext(t[0], t[1], t[2], how.options(t)))
        .with(how)
        .is(move |x| how.of_arrays(x))
        .laid(ROWS)
        .makes(F32)
        .off(off)
        .near(1e-2)
        .spreads(move |x| how.spread(types, x))
}

fn drawn(s: &mut dyn Source) -> Case {
    let types = [F32, F16, Q8, Q4];
    let (n_kv, batch, kv_heads) = (s.dim(), s.dim(), s.size(1, 2));
    let (heads, n3) = (kv_heads * s.size(1, 2), s.size(1, 2));
    let [tk, tv] = [(); 2].map(|()| s.dtype(&types));
    let [dk, dv] = [tk, tv].map(|t| if t.block_size() > 1 { t.block_size() } else { s.size(1, 8) });
    let mut how = Attending { mask: s.bool(), sinks: s.chance(3), n_kv_max: s.int(0, 4), ..scaled(s.float(0.1, 1.0)) };
    let mut operands = vec![
        sized(F32, [dk, batch, heads, n3]),
        sized(tk, [dk, n_kv, kv_heads, n3]),
        sized(tv, [dv, n_kv, kv_heads, n3]),
    ];
    if how.mask {
        let (m2, m3) = (if s.bool() { heads } else { 1 }, if s.bool() { n3 } else { 1 });
        operands.push(sized(F16, [n_kv, batch.saturating_add(s.size(0, 1)), m2, m3]).still());
        how.max_bias = if s.bool() { s.float(0.0, 8.0) } else { 0.0 };
    }
    how.cap = if s.chance(3) { s.float(0.0, 10.0) } else { 0.0 };
    if how.sinks {
        operands.push(sized(F32, [heads, 1, 1, 1]).still());
    }
    how.acc = s.chance(4).then(|| s.one(&[Prec::F32, Prec::F32, Prec::F16, Prec::Q4]));
    attention(operands, how)
}

/// Sizes of keys and values, keys, queries; heads, those of keys, batches: all implementations, with and without
/// remainders, with and without heads that share keys.
const SIZES: [([usize; 4], [usize; 3]); 9] = [
    ([1, 1, 1, 1], [1, 1, 1]),
    ([8, 8, 5, 1], [2, 2, 1]),
    ([40, 24, 7, 3], [6, 2, 2]),
    ([128, 128, 33, 2], [3, 1, 1]),
    ([64, 64, 70, 64], [2, 1, 1]),
    ([80, 72, 65, 67], [2, 2, 2]),
    ([7, 3, 130, 65], [3, 3, 1]),
    ([64, 64, 513, 1], [4, 2, 1]),
    ([5, 9, 600, 1], [3, 1, 1]),
];

/// Queries, keys and values.
fn inputs(
    ([size, v_size, n_kv, n_batch], [heads, kv_heads, batches]): ([usize; 4], [usize; 3]),
    types: [DType; 2],
) -> Vec<Operand> {
    let [k, v] = types;
    let all = [
        f32([size, n_batch, heads, batches]),
        of(k, [size, n_kv, kv_heads, batches]),
        of(v, [v_size, n_kv, kv_heads, batches]),
    ];
    all.map(|o| o.within(-1.5, 1.5)).into()
}

/// Masks that hide keys, from one query all of them, which not all GPUs compute.
fn hidden(row: Row) -> Row {
    row.all(SIZES, |row, of| {
        let ([_, _, n_kv, n_batch], [heads, _, batches]) = of;
        let masks = [[n_kv, n_batch, 1, 1], [n_kv, n_batch + 3, heads, 1], [n_kv, n_batch, 1, batches]];
        let still = |operands: Vec<Operand>| operands.into_iter().map(Operand::still);
        let row = row.with(attention(still(inputs(of, [F32; 2])), scaled(0.3)));
        let row = row.all(masks, |row, ne| {
            let how = Attending { mask: true, ..scaled(0.3) };
            row.with(attention(still(inputs(of, [F32; 2])).chain([hiding(ne).still()]), how).lone())
        });
        row.all(
            [(8.0, 0.0, false), (0.0, 1.5, false), (0.0, 0.0, true), (4.0, 2.0, true)],
            |row, (max_bias, cap, sinks)| {
                let how =
                    Attending { max_bias, cap, mask: true, sinks, acc: Some(Prec::F32), n_kv_max: 1, ..scaled(0.3) };
                let sinks = sinks.then(|| f32([heads]).within(-1.0, 2.0).still());
                row.with(
                    attention(still(inputs(of, [F32; 2])).chain([hiding(masks[0]).still()]).chain(sinks), how).lone(),
                )
            },
        )
    })
}

pub(super) fn row() -> Row {
    let lengths = [(256, 1), (256, 7), (512, 64)];
    let sizes = [64, 128].into_iter().flat_map(|size| lengths.map(|(kv, batch)| (size, kv, batch)));
    let row = Row::new("flash_attn_ext", "FLASH_ATTN_EXT")
        .with(attention([f32([64, 9, 4]), of(F16, [64, 32, 2]), of(F16, [64, 32, 2])], scaled(0.125)));
    let row = row.all(sizes, |row, (size, kv, batch)| {
        row.all([F16, Q8], |row, dtype| {
            let keys = || of(dtype, [size, kv, 2]).within(-1.0, 1.0);
            let mask = of(F16, [kv, batch]).within(-1.0, 1.0).still();
            let operands = [f32([size, batch, 8]).within(-1.0, 1.0), keys(), keys(), mask];
            // Too large for the reference.
            let case = attention(operands, Attending { mask: true, ..scaled(1.0 / (size as f32).sqrt()) });
            let row = row.with(Case { reference: None, ..case }.laid(PLAIN));
            if dtype == F16 { row.must() } else { row }
        })
    });
    let types = [[F32; 2], [F16; 2], [F16, F32], [F32, F16], [BF16; 2], [Q8; 2], [Q8, F16], [F32, Q4], [Q4; 2]];
    let blocks = [([32, 64, 9, 3], [4, 2, 2]), ([64, 32, 70, 66], [2, 1, 1]), ([96, 64, 530, 1], [3, 3, 1])];
    let row =
        row.all(blocks, |row, size| row.all(types, |row, types| row.with(attention(inputs(size, types), scaled(0.1)))));
    // Meta devices split it by heads only.
    hidden(row).drawn(drawn)
}
