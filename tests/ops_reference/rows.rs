//! Operations on rows: softmax, norms, sums, gated units, positions, picks, loss.

use ggml::prelude::*;
use ggml::{Glu, Rope, RopeMode, SoftMax};

use super::array::Array;
use super::functions::{erf, gelu, sigmoid};
use super::run::{BF16, F16, F32, I32, Layout, Program, rounding};

fn soft_max(row: &[f64], sink: Option<f64>) -> Vec<f64> {
    let most = row.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().copied().chain(sink).map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / sum).collect()
}

#[test]
fn soft_max_of_rows() {
    for (seed, ne) in [[7, 3, 2, 2], [1, 4, 1, 1], [100, 2, 1, 3], [4, 1, 3, 2]].into_iter().enumerate() {
        let a = Array::noise(ne, 5.0, seed as u64, F32);
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let y = ctx.soft_max(p.input(&a, F32)).unwrap();
        p.run(y).assert_near(&a.rows(|row, _| soft_max(row, None)), 1e-6, &format!("{ne:?}"));
    }
}

/// The slope of a head for biases by distance: a geometric series over the heads up to a power of two, and one between
/// its members for the others.
fn slope(head: usize, heads: usize, max_bias: f64) -> f64 {
    if max_bias == 0.0 {
        return 1.0;
    }
    let power = 1_usize << heads.ilog2();
    if head < power {
        2_f64.powf(-max_bias * (head + 1) as f64 / power as f64)
    } else {
        let between = 2 * (head - power) + 1;
        2_f64.powf(-max_bias / 2.0 * between as f64 / power as f64)
    }
}

#[test]
fn soft_max_with_scale_mask_slopes_and_sinks() {
    let ne = [9, 4, 6, 2];
    for type_of_mask in [F32, F16] {
        for masks in [[9, 4, 1, 1], [9, 7, 6, 2], [9, 4, 3, 1]] {
            for (max_bias, with_sinks) in [(0.0, false), (8.0, false), (0.0, true), (8.0, true)] {
                let a = Array::noise(ne, 4.0, 1, F32);
                let mask =
                    Array::noise(masks, 2.0, 2, type_of_mask).map(|x| if x > 1.6 { f64::NEG_INFINITY } else { x });
                let sinks = Array::noise([6, 1, 1, 1], 2.0, 3, F32);
                let ctx = Context::new();
                let p = Program::new(&ctx);
                let mut how = SoftMax::default();
                how.scale = 0.5;
                how.mask = Some(p.input(&mask, type_of_mask));
                how.max_bias = max_bias as f32;
                how.sinks = with_sinks.then(|| p.input(&sinks, F32));
                let y = ctx.soft_max_ext(p.input(&a, F32), how).unwrap();
                let want = a.rows(|row, [i1, i2, i3]| {
                    let slope = slope(i2, ne[2], max_bias);
                    let biased =
                        |(i, x): (usize, &f64)| 0.5 * x + slope * mask.at([i, i1, i2 % masks[2], i3 % masks[3]]);
                    let row: Vec<f64> = row.iter().enumerate().map(biased).collect();
                    soft_max(&row, with_sinks.then(|| sinks.at([i2, 0, 0, 0])))
                });
                p.run(y).assert_near(&want, 1e-5, &format!("{type_of_mask} {masks:?} {max_bias} {with_sinks}"));
            }
        }
    }
}

#[test]
fn masks_of_the_future() {
    for n_past in [0, 2, 9] {
        let a = Array::noise([5, 4, 2, 3], 1.0, 4, F32);
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let y = ctx.diag_mask_inf(p.input(&a, F32), n_past).unwrap();
        let hidden = |i: [usize; 4]| i[0] as i64 > i64::from(n_past) + i[1] as i64;
        let want = Array::from_fn(a.ne, |i| if hidden(i) { f64::NEG_INFINITY } else { a.at(i) });
        assert_eq!(p.run(y), want, "{n_past}");
    }
}

const EPS: f32 = 0.01;

fn normal(row: &[f64]) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
    row.iter().map(|x| (x - mean) / (variance + f64::from(EPS)).sqrt()).collect()
}

#[test]
fn norms_of_rows() {
    type Norm = for<'c> fn(&'c Context, Tensor<'c>) -> ggml::Result<Tensor<'c>>;
    type Reference = fn(&[f64]) -> Vec<f64>;
    #[rustfmt::skip]
    let table: [(&str, Norm, Reference); 3] = [
        ("norm", |c, a| c.norm(a, EPS), |row| normal(row)),
        ("rms_norm", |c, a| c.rms_norm(a, EPS), |row| {
            let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            row.iter().map(|x| x / (square + f64::from(EPS)).sqrt()).collect()
        }),
        ("l2_norm", |c, a| c.l2_norm(a, EPS), |row| {
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter().map(|x| x / length.max(f64::from(EPS))).collect()
        }),
    ];
    for (name, op, reference) in table {
        for reach in [3.0, 0.0003] {
            for layout in Layout::ROWS {
                let a = Array::noise([70, 3, 2, 2], reach, 5, F32);
                let ctx = Context::new();
                let p = Program::new(&ctx);
                let y = op(&ctx, p.laid_out(&a, F32, layout)).unwrap();
                p.run(y).assert_near(&a.rows(|row, _| reference(row)), 1e-5, &format!("{name} {layout:?}"));
            }
        }
    }
    for groups in [1, 2, 3, 6] {
        for layout in Layout::ROWS {
            let a = Array::noise([5, 3, 6, 2], 3.0, 6, F32);
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let y = ctx.group_norm(p.laid_out(&a, F32, layout), groups, EPS).unwrap();
            let in_group = 5 * 3 * 6 / groups as usize;
            let data = a.data.chunks(in_group).flat_map(normal).collect();
            p.run(y).assert_near(&Array { ne: a.ne, data }, 1e-5, &format!("{groups} groups {layout:?}"));
        }
    }
}

#[test]
fn a_norm_and_its_weights_are_one_kernel() {
    let a = Array::noise([12, 3, 2, 2], 3.0, 7, F32);
    for ne in [[12, 1, 1, 1], [12, 3, 1, 2], [12, 3, 2, 2]] {
        for layout in Layout::ROWS {
            let w = Array::noise(ne, 1.0, 8, F32);
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let y = ctx.mul(ctx.rms_norm(p.input(&a, F32), 0.0).unwrap(), p.laid_out(&w, F32, layout)).unwrap();
            let norm = a.rows(|row, _| {
                let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
                row.iter().map(|x| x / square.sqrt()).collect()
            });
            let want = Array::from_fn(a.ne, |i| norm.at(i) * w.wrapped(i));
            p.run(y).assert_near(&want, 1e-5, &format!("{ne:?} {layout:?}"));
        }
    }
}

#[test]
fn sums_means_and_largest() {
    for layout in Layout::ROWS {
        let a = Array::noise([33, 3, 2, 2], 1.0, 9, F32);
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let x = p.laid_out(&a, F32, layout);
        p.run(ctx.sum_rows(x).unwrap()).assert_near(&a.rows(|r, _| vec![r.iter().sum()]), 1e-5, "sum_rows");
        let mean = |r: &[f64]| vec![r.iter().sum::<f64>() / 33.0];
        p.run(ctx.mean(x).unwrap()).assert_near(&a.rows(|r, _| mean(r)), 1e-6, "mean");
        for (dtype, tolerance) in [(F32, 1e-5), (F16, 1e-2), (BF16, 5e-2)] {
            let a = a.rounded(dtype);
            let y = ctx.sum(p.laid_out(&a, dtype, layout)).unwrap();
            let want = Array { ne: [1; 4], data: vec![a.data.iter().sum()] };
            p.run(y).assert_near(&want, tolerance, &format!("sum of {dtype}"));
        }
        let a = Array::noise([33, 5, 1, 1], 1.0, 10, F32);
        let place = |row: &[f64]| (0..33).reduce(|m, i| if row[i] > row[m] { i } else { m }).unwrap() as f64;
        let want = a.rows(|row, _| vec![place(row)]).reshaped([5, 1, 1, 1]);
        assert_eq!(p.run(ctx.argmax(p.laid_out(&a, F32, layout)).unwrap()), want, "argmax {layout:?}");
    }
}

#[test]
fn gated_units() {
    type Gate = fn(f64) -> f64;
    let table: [(Glu, Gate, f64); 5] = [
        (Glu::Reglu, |x| x.max(0.0), 0.0),
        (Glu::Geglu, gelu, 4e-3),
        (Glu::Swiglu, |x| x * sigmoid(x), 0.0),
        (Glu::GegluErf, |x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)), 0.0),
        (Glu::GegluQuick, |x| x * sigmoid(1.702 * x), 4e-3),
    ];
    for (op, gate, slack) in table {
        for dtype in [F32, F16, BF16] {
            // Rows may have gaps, the rest not.
            for layout in [Layout::PACKED, Layout { pad: [4, 0, 0, 0], ..Layout::PACKED }] {
                let tolerance = slack.max(2.0 * rounding(dtype));
                let a = Array::noise([10, 3, 2, 2], 2.0, 11, dtype);
                let b = Array::noise([10, 3, 2, 2], 2.0, 12, dtype);
                let ctx = Context::new();
                let p = Program::new(&ctx);
                let x = p.laid_out(&a, dtype, layout);
                for swapped in [false, true] {
                    let y = ctx.glu(x, op, swapped).unwrap();
                    let want = a.rows(|row, _| {
                        let (g, v) = if swapped { (&row[5..], &row[..5]) } else { (&row[..5], &row[5..]) };
                        g.iter().zip(v).map(|(&g, v)| gate(g) * v).collect()
                    });
                    p.run(y).assert_near(&want, tolerance, &format!("{op:?} {dtype} {swapped}"));
                }
                let y = ctx.glu_split(x, p.laid_out(&b, dtype, Layout::PACKED), op).unwrap();
                let want = Array::from_fn(a.ne, |i| gate(a.at(i)) * b.at(i));
                p.run(y).assert_near(&want, tolerance, &format!("{op:?} {dtype} split"));
            }
        }
    }
}

/// The angle by which pair `k` at `position` is turned, and the factor of its length.
fn angle(position: f64, k: usize, n: usize, how: Rope<'_>, factor: f64) -> (f64, f64) {
    let base = f64::from(how.freq_base);
    let far = position * base.powf(-2.0 * k as f64 / n as f64) / factor;
    let near = far * f64::from(how.freq_scale);
    let (mix, scale) = (f64::from(how.ext_factor), f64::from(how.attn_factor));
    if mix == 0.0 {
        return (near, scale);
    }
    // YaRN: dimensions that turn more often than `beta_fast` times within the context of the training keep their
    // frequency, those that turn less often than `beta_slow` are interpolated, between them it is mixed.
    let dim = |turns: f32| {
        let context = f64::from(how.n_ctx_orig);
        n as f64 * (context / (f64::from(turns) * std::f64::consts::TAU)).ln() / (2.0 * base.ln())
    };
    let (low, high) = (dim(how.beta_fast).floor().max(0.0), dim(how.beta_slow).ceil().min(n as f64 - 1.0));
    let ramp = 1.0 - ((k as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    let mix = ramp * mix;
    (near * (1.0 - mix) + far * mix, scale * (1.0 - 0.1 * f64::from(how.freq_scale).ln()))
}

fn roped(a: &Array, positions: &Array, how: Rope<'_>, factors: Option<&Array>) -> Array {
    let n = how.n_dims as usize;
    a.rows(|row, [_, token, _]| {
        let mut out = row.to_vec();
        for k in 0..n / 2 {
            let (i, j) = if how.mode == RopeMode::Normal { (2 * k, 2 * k + 1) } else { (k, k + n / 2) };
            let factor = factors.map_or(1.0, |f| f.data[k]);
            let (turn, scale) = angle(positions.data[token], k, n, how, factor);
            out[i] = (row[i] * turn.cos() - row[j] * turn.sin()) * scale;
            out[j] = (row[i] * turn.sin() + row[j] * turn.cos()) * scale;
        }
        out
    })
}

#[test]
fn rotations_by_position() {
    let positions = Array { ne: [4, 1, 1, 1], data: vec![0.0, 5.0, 3.0, 17.0] };
    let factors = Array::noise([5, 1, 1, 1], 0.4, 13, F32).map(|x| x + 1.0).rounded(F32);
    for dtype in [F32, F16] {
        for layout in Layout::ROWS {
            for mode in [RopeMode::Normal, RopeMode::NeoX] {
                for n_dims in [2, 6, 10] {
                    let a = Array::noise([10, 3, 4, 2], 1.0, 14, dtype);
                    let tolerance = 1e-5 + rounding(dtype);
                    let ctx = Context::new();
                    let p = Program::new(&ctx);
                    let (x, at) = (p.laid_out(&a, dtype, layout), p.input(&positions, I32));
                    let what = format!("{dtype} {layout:?} {mode:?} {n_dims}");
                    let how = Rope::new(n_dims, mode);
                    let y = ctx.rope(x, at, n_dims, mode).unwrap();
                    p.run(y).assert_near(&roped(&a, &positions, how, None), tolerance, &what);
                    let mut how = Rope::new(n_dims, mode);
                    how.freq_factors = Some(p.input(&factors, F32));
                    how.freq_base = 500.0;
                    how.freq_scale = 0.25;
                    how.attn_factor = 1.5;
                    let y = ctx.rope_ext(x, at, how).unwrap();
                    p.run(y).assert_near(&roped(&a, &positions, how, Some(&factors)), 2.0 * tolerance, &what);
                    how.n_ctx_orig = 64;
                    how.ext_factor = 0.75;
                    (how.beta_fast, how.beta_slow) = (8.0, 1.0);
                    let y = ctx.rope_ext(x, at, how).unwrap();
                    p.run(y).assert_near(&roped(&a, &positions, how, Some(&factors)), 2.0 * tolerance, &what);
                }
            }
        }
    }
}

#[test]
fn rows_picked_by_number() {
    let picks = Array { ne: [5, 2, 3, 1], data: (0..30).map(|i| f64::from(i * 7 % 4)).collect() };
    for dtype in [F32, F16, BF16, I32, DType::Q8_0, DType::Q4_0] {
        let a = Array::noise([32, 4, 2, 3], 50.0, 15, dtype);
        let a = Array::from_bytes(a.ne, dtype, &a.bytes(dtype));
        for layout in Layout::ROWS {
            let layout = if dtype.is_quantized() { Layout { pad: [0, 1, 2, 0], ..layout } } else { layout };
            for numbers in [Layout::PACKED, Layout::TRANSPOSED] {
                let ctx = Context::new();
                let p = Program::new(&ctx);
                let n = p.laid_out(&picks, I32, numbers);
                let y = ctx.get_rows(p.laid_out(&a, dtype, layout), n).unwrap();
                assert_eq!(y.dtype(), if dtype == I32 { I32 } else { F32 });
                let want = Array::from_fn([32, 5, 2, 3], |[i0, i1, i2, i3]| {
                    a.at([i0, picks.at([i1, i2, i3, 0]) as usize, i2, i3])
                });
                p.run(y).assert_near(&want, 1e-6, &format!("{dtype} {layout:?}"));
            }
        }
    }
}

#[test]
fn cross_entropy_of_rows() {
    for layout in [Layout::PACKED, Layout { pad: [4, 0, 0, 0], ..Layout::PACKED }] {
        let a = Array::noise([10, 3, 2, 2], 4.0, 16, F32);
        let labels = Array::noise(a.ne, 1.0, 17, F32).map(f64::abs);
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let y = ctx.cross_entropy_loss(p.laid_out(&a, F32, layout), p.laid_out(&labels, F32, layout)).unwrap();
        let mut sum = 0.0;
        a.rows(|row, [i1, i2, i3]| {
            let likely = soft_max(row, None);
            sum -= (0..10).map(|i| likely[i].ln() * labels.at([i, i1, i2, i3])).sum::<f64>();
            vec![0.0]
        });
        p.run(y).assert_near(&Array { ne: [1; 4], data: vec![sum / 12.0] }, 1e-5, &format!("{layout:?}"));
    }
}
