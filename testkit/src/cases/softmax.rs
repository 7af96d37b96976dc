//! Softmax and the loss that is made of it.

use ggml::ops::SoftMaxOptions;
use ggml::prelude::*;

use super::case::{Case, Known, Operand, f32, of, sized};
use super::draw::Source;
use super::row::Row;
use super::{F16, F32, PLAIN};
use crate::array::Array;

/// Softmax of a row, maybe with a sink.
pub fn soft_max(row: &[f64], sink: Option<f64>) -> Vec<f64> {
    let most = row.iter().chain(&sink).copied().fold(f64::MIN, f64::max);
    let all: f64 = row.iter().chain(&sink).map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / all).collect()
}

/// The slope of a head in `ALiBi`: a geometric sequence over the largest power of two of heads, then the odd powers of
/// the sequence for twice as many.
pub fn slope(head: usize, heads: usize, max_bias: f64) -> f64 {
    if max_bias == 0.0 {
        return 1.0;
    }
    let power = 1 << heads.ilog2();
    let base = |bias: f64| (-bias / power as f64).exp2();
    if head < power {
        base(max_bias).powi(head as i32 + 1)
    } else {
        base(max_bias / 2.0).powi(2 * (head - power) as i32 + 1)
    }
}

/// The options without their tensors.
#[derive(Debug, Clone, Copy)]
struct Shares {
    scale: f32,
    max_bias: f32,
    mask: bool,
    sinks: bool,
}

impl Shares {
    /// The options, of operands among which a mask and sinks follow the first.
    fn options<'c>(self, t: &[Tensor<'c>]) -> SoftMaxOptions<'c> {
        let how = SoftMaxOptions::new().with_scale(self.scale).with_max_bias(self.max_bias);
        let mask = self.mask.then(|| t[1]);
        how.with_mask(mask).with_sinks(self.sinks.then(|| t[1 + usize::from(self.mask)]))
    }

    fn of_arrays(self, x: &[Array]) -> Array {
        let heads = x[0].ne[2];
        let scaled = Array::of(x[0].ne, |i| {
            let bias = if self.mask { x[1].at([i[0], i[1], i[2] % x[1].ne[2], i[3] % x[1].ne[3]]) } else { 0.0 };
            f64::from(self.scale) * x[0].at(i) + slope(i[2], heads, self.max_bias.into()) * bias
        });
        let mut rows = 0..;
        scaled.rows(|row| {
            let head = rows.next().unwrap_or(0) / x[0].ne[1] % heads;
            soft_max(row, self.sinks.then(|| x[1 + usize::from(self.mask)].data[head]))
        })
    }

    /// How far a share may be off: exponents by the errors of logits, and those by their rounding.
    fn spread(self, x: &[Known]) -> f64 {
        let factors = [f64::from(self.scale).abs(), 1.0, 1.0];
        let off = |(k, factor): (&Known, f64)| factor * (k.error + 2e-7 * k.largest());
        (2.0 * x.iter().zip(factors).map(off).sum::<f64>()).exp_m1() + 1e-5
    }
}

fn ext(operands: impl IntoIterator<Item = Operand>, how: Shares) -> Case {
    Case::new(operands, move |c, t| c.soft_max_ext(t[0], how.options(t)))
        .with(how)
        .is(move |x| how.of_arrays(x))
        .in_place(move |c, t| c.soft_max_ext_inplace(t[0], how.options(t)))
        .laid(PLAIN)
        .off(1e-5)
        .spreads(move |x| how.spread(x))
}

fn plain(x: Operand) -> Case {
    let how = Shares { scale: 1.0, max_bias: 0.0, mask: false, sinks: false };
    Case::new([x], |c, t| c.soft_max(t[0]))
        .is(move |x| how.of_arrays(x))
        .in_place(|c, t| c.soft_max_inplace(t[0]))
        .laid(PLAIN)
        .off(1e-5)
        .spreads(move |x| how.spread(x))
}

/// The gradient of what was scaled before, by that of the shares and by the shares.
fn back(grad: Operand, shares: Operand, scale: f32) -> Case {
    let reference = move |x: &[Array]| {
        let mut all = x[1].data.chunks(x[1].ne[0]);
        x[0].rows(|grad| {
            let y = all.next().unwrap_or_default();
            let sum: f64 = grad.iter().zip(y).map(|(g, y)| g * y).sum();
            grad.iter().zip(y).map(|(g, y)| f64::from(scale) * y * (g - sum)).collect()
        })
    };
    Case::new([grad, shares], move |c, t| c.soft_max_ext_back(t[0], t[1], scale))
        .with(scale)
        .is(reference)
        .in_place(move |c, t| c.soft_max_ext_back_inplace(t[0], t[1], scale))
        .laid(PLAIN)
        .spreads(move |k| {
            let (g, y, n) = (k[0].largest() + k[0].error, k[1].largest() + k[1].error, k[0].values.ne[0] as f64);
            let off = k[1].error * (g + n * g * y) + y * (k[0].error + n * (g * k[1].error + y * k[0].error));
            f64::from(scale).abs() * (off + 2e-6 * y * (g + n * g * y))
        })
}

fn loss(logits: Operand, labels: Operand) -> Case {
    let reference = |x: &[Array]| {
        let shares = x[0].rows(|row| soft_max(row, None));
        let sum: f64 = shares.data.iter().zip(&x[1].data).map(|(p, l)| -l * p.ln()).sum();
        Array { ne: [1; 4], data: vec![sum / (x[0].data.len() / x[0].ne[0]) as f64] }
    };
    Case::new([logits, labels], |c, t| c.cross_entropy_loss(t[0], t[1])).is(reference).laid(PLAIN).spreads(|k| {
        let (x, l, n) = (k[0].largest(), k[1].largest() + k[1].error, k[0].values.ne[0] as f64);
        let most = 2.0 * x + n.ln() + 1.0;
        n * (l * (2.0 * k[0].error + 2e-6 * most) + k[1].error * most)
    })
}

/// The gradient of the loss, if the labels of a row sum to 1.
fn loss_back(grad: Operand, logits: Operand, labels: Operand) -> Case {
    let reference = |x: &[Array]| {
        let shares = x[1].rows(|row| soft_max(row, None));
        let factor = x[0].data[0] / (shares.data.len() / shares.ne[0]) as f64;
        Array { ne: shares.ne, data: shares.data.iter().zip(&x[2].data).map(|(p, l)| factor * (p - l)).collect() }
    };
    let case = Case::new([grad, logits, labels], |c, t| c.cross_entropy_loss_back(t[0], t[1], t[2]));
    case.is(reference).laid(PLAIN).makes(F32).spreads(|k| {
        let (g, l) = (k[0].largest(), k[2].largest() + k[2].error);
        let share = (2.0 * (k[1].error + 2e-7 * k[1].largest())).exp_m1() + 1e-5 + k[2].error;
        k[0].error * (1.0 + l) + (g + k[0].error) * (share + 1e-6 * (1.0 + l))
    })
}

fn drawn(s: &mut dyn Source) -> Case {
    let x = s.plain();
    let [n0, n1, n2, n3] = x.shape();
    let mut how = Shares { scale: s.float(-2.0, 2.0), max_bias: 0.0, mask: s.bool(), sinks: s.chance(3) };
    let mut operands = vec![x];
    if how.mask {
        let (dtype, more) = (s.one(&[F32, F16]), s.size(0, 1));
        let (m2, m3) = (if s.bool() { n2 } else { 1 }, if s.bool() { n3 } else { 1 });
        operands.push(sized(dtype, [n0, n1.saturating_add(more), m2, m3]).still());
    }
    // A slope needs a mask.
    if s.chance(if how.mask { 3 } else { 24 }) {
        how.max_bias = s.float(0.0, 8.0);
    }
    if how.sinks {
        operands.push(sized(F32, [n2, 1, 1, 1]).still());
    }
    ext(operands, how)
}

fn rows_of_options() -> Row {
    let how = |scale, max_bias| Shares { scale, max_bias, mask: true, sinks: false };
    let long = [1, 7, 64, 1025].into_iter().flat_map(|n| [F32, F16].map(|t| (n, t)));
    let row = Row::new("soft_max_ext", "SOFT_MAX").all(long, |row, (n, mask)| {
        row.all([0.0, 8.0], |row, bias| row.with(ext([f32([n, 5, 4, 2]), of(mask, [n, 5])], how(0.125, bias))).must())
    });
    let masks = [[7, 3, 1, 1], [7, 5, 1, 1], [7, 3, 3, 1], [7, 3, 6, 2], [7, 4, 1, 4]];
    let row = row.all(masks, |row, ne| {
        let all = [(F32, 0.0, false), (F16, 0.0, true), (F32, 8.0, true), (F16, 4.0, false)];
        row.all(all, |row, (dtype, max_bias, sinks)| {
            let (x, mask) = (f32([7, 3, 6, 4]), of(dtype, ne).within(-2.0, 0.0).still());
            let sink = sinks.then(|| f32([6]).within(-1.0, 2.0).still());
            row.with(ext([x, mask].into_iter().chain(sink), Shares { sinks, ..how(0.7, max_bias) }))
        })
    });
    let sinks = Shares { scale: 1.0, max_bias: 0.0, mask: false, sinks: true };
    row.with(ext([f32([33, 5, 4, 2]), f32([4])], sinks))
        .with(ext([f32([67, 5, 3, 2]), of(F16, [67, 5]), f32([3])], Shares { sinks: true, ..how(0.6, 4.0) }))
        .in_place("soft_max_ext_inplace", |c, t| c.soft_max_ext_inplace(t[0], SoftMaxOptions::new()))
}

pub(super) fn rows() -> Vec<Row> {
    let shapes = [[37, 1, 1, 1], [67, 5, 3, 2], [1, 1, 1, 1], [5, 3, 2, 2]];
    let row = Row::new("soft_max", "SOFT_MAX")
        .all(shapes, |row, ne| row.with(plain(f32(ne).within(-4.0, 4.0))))
        .all([1, 7, 64, 1025], |row, n| row.with(plain(f32([n, 5, 4, 2]))).must());
    let labels = |ne| of(F32, ne).within(0.0, 1.0);
    let pairs = [[70, 9, 1, 1], [1, 1, 1, 1], [10, 1, 1, 1], [10, 7, 1, 1], [5, 3, 2, 2]];
    let scales = [([67, 5, 3, 2], 0.5), ([1, 1, 1, 1], 1.0), ([9, 1, 1, 1], 0.5), ([5, 3, 2, 2], 2.0)];
    let back_row = Row::new("soft_max_ext_back", "SOFT_MAX_BACK")
        .all(scales, |row, (ne, scale)| row.with(back(f32(ne), f32(ne).within(0.0, 0.1), scale)));
    let loss_row = Row::new("cross_entropy_loss", "CROSS_ENTROPY_LOSS")
        .all(pairs, |row, ne| row.with(loss(f32(ne).within(-3.0, 3.0), labels(ne))));
    let loss_back_row = Row::new("cross_entropy_loss_back", "CROSS_ENTROPY_LOSS_BACK")
        .all(pairs, |row, ne| row.with(loss_back(f32([1]), f32(ne).within(-3.0, 3.0), labels(ne))));
    vec![
        row.drawn(|s| plain(s.plain())).in_place("soft_max_inplace", |c, t| c.soft_max_inplace(t[0])).learns(),
        rows_of_options().drawn(drawn),
        back_row
            .drawn(|s| {
                let [grad, shares] = s.plain().twice();
                back(grad, shares, s.float(-2.0, 2.0))
            })
            .in_place("soft_max_ext_back_inplace", |c, t| c.soft_max_ext_back_inplace(t[0], t[1], 1.0))
            .no_meta(),
        loss_row
            .drawn(|s| {
                let [logits, labels] = s.plain().twice();
                loss(logits, labels)
            })
            .no_meta()
            .learns(),
        loss_back_row
            .drawn(|s| {
                let [logits, labels] = s.plain().twice();
                loss_back(f32([1]), logits, labels)
            })
            .no_meta(),
    ]
}
