//! Softmax, masks and cross entropy.

use ggml::SoftMax;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// Softmax of a row, of which one more logit may take a share.
fn soft_max(row: &[f64], sink: Option<f64>) -> Vec<f64> {
    let all: f64 = row.iter().chain(&sink).map(|x| x.exp()).sum();
    row.iter().map(|x| x.exp() / all).collect()
}

/// The slope of a head in `ALiBi`: a geometric sequence over the largest power of two of heads, then the odd powers of
/// the sequence for twice as many.
pub(crate) fn slope(head: usize, heads: usize, max_bias: f64) -> f64 {
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

#[test]
fn softmax_is_that_of_plain_rust() {
    for shape in [ne([1]), ne([37]), ne([5, 3, 2, 2])] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.plain(&Array::sample(shape, 4, -4.0, 4.0));
        let got = lab.run(ctx.soft_max(x).unwrap()).unwrap();
        assert_close(&got, &values.rows(|r| soft_max(r, None)), 1e-5, &format!("{shape:?}"));
    }
}

#[test]
fn softmax_with_masks_slopes_and_sinks_is_that_of_plain_rust() {
    let shape = ne([7, 3, 6, 4]);
    for mask_shape in [ne([7, 3]), ne([7, 5]), ne([7, 3, 3]), ne([7, 3, 6, 2]), ne([7, 4, 1, 4])] {
        for (dtype, max_bias, with_sinks) in
            [(DType::F32, 0.0, false), (DType::F16, 0.0, true), (DType::F32, 8.0, true), (DType::F16, 4.0, false)]
        {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.plain(&Array::sample(shape, 4, -2.0, 2.0));
            let (mask, of_mask) = lab.operand(&Array::sample(mask_shape, 5, -2.0, 0.0), dtype, Layout::Plain);
            let (sinks, of_sinks) = lab.plain(&Array::sample(ne([6]), 6, -1.0, 2.0));
            let mut how = SoftMax::default();
            how.scale = 0.7;
            how.mask = Some(mask);
            how.max_bias = max_bias;
            how.sinks = with_sinks.then_some(sinks);
            let y = ctx.soft_max_ext(x, how).unwrap();
            let scaled = Array::of(shape, |[i0, i1, i2, i3]| {
                let bias = of_mask.at([i0, i1, i2 % mask_shape[2], i3 % mask_shape[3]]);
                f64::from(how.scale) * values.at([i0, i1, i2, i3]) + slope(i2, 6, max_bias.into()) * bias
            });
            let mut row = 0;
            let want = scaled.rows(|r| {
                let head = row / 3 % 6;
                row += 1;
                soft_max(r, with_sinks.then(|| of_sinks.data[head]))
            });
            let context = format!("{mask_shape:?} {dtype} {max_bias} {with_sinks}");
            assert_close(&lab.run(y).unwrap(), &want, 1e-5, &context);
        }
    }
}

#[test]
fn softmax_refuses_what_does_not_fit() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [8, 4, 6, 2]);
    let with = |change: &dyn Fn(&mut SoftMax<'_>)| {
        let mut how = SoftMax::default();
        change(&mut how);
        how
    };
    refused!(DType, ctx.soft_max(of(DType::F16, [8, 4, 1, 1])));
    refused!(Shape, ctx.soft_max(ctx.transpose(x).unwrap()));
    refused!(Shape, ctx.soft_max(ctx.permute(x, [0, 2, 1, 3]).unwrap()));
    for scale in [f32::NAN, f32::INFINITY] {
        refused!(Param, ctx.soft_max_ext(x, with(&|h| h.scale = scale)));
    }
    let mask = of(DType::F32, [8, 4, 1, 1]);
    for bias in [-1.0, f32::NAN, f32::INFINITY] {
        let mut how = SoftMax::default();
        (how.mask, how.max_bias) = (Some(mask), bias);
        refused!(Param, ctx.soft_max_ext(x, how), "{bias}");
    }
    refused!(Param, ctx.soft_max_ext(x, with(&|h| h.max_bias = 1.0)), "a slope of no mask");
    let masked = |mask| {
        let mut how = SoftMax::default();
        how.mask = Some(mask);
        ctx.soft_max_ext(x, how)
    };
    refused!(DType, masked(of(DType::BF16, [8, 4, 1, 1])));
    refused!(DType, masked(of(DType::I32, [8, 4, 1, 1])));
    for shape in [[7, 4, 1, 1], [9, 4, 1, 1], [8, 3, 1, 1], [8, 4, 4, 1], [8, 4, 12, 1], [8, 4, 1, 3]] {
        refused!(Shape, masked(of(DType::F32, shape)), "{shape:?}");
    }
    refused!(Shape, masked(ctx.transpose(of(DType::F32, [4, 8, 1, 1])).unwrap()));
    let sunk = |sinks| {
        let mut how = SoftMax::default();
        how.sinks = Some(sinks);
        ctx.soft_max_ext(x, how)
    };
    refused!(DType, sunk(of(DType::F16, [6, 1, 1, 1])));
    for shape in [[5, 1, 1, 1], [7, 1, 1, 1], [6, 2, 1, 1], [1, 6, 1, 1]] {
        refused!(Shape, sunk(of(DType::F32, shape)), "{shape:?}");
    }
    assert!(sunk(of(DType::F32, [6, 1, 1, 1])).is_ok());
}

#[test]
fn diag_mask_inf_hides_the_future() {
    for n_past in [0, 2, 9] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.plain(&Array::sample(ne([6, 4, 2, 2]), 4, -2.0, 2.0));
        let y = ctx.diag_mask_inf(x, n_past).unwrap();
        let want =
            Array::of(values.ne, |i| if i[0] > i[1] + n_past as usize { f64::NEG_INFINITY } else { values.at(i) });
        let got = lab.run_all(&[y, x]).unwrap();
        assert_close(&got[0], &want, 0.0, &format!("{n_past}"));
        assert_close(&got[1], &values, 0.0, "the operand keeps its value");
    }
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [6, 4]).unwrap();
    for n_past in [-1, i32::MIN, i32::MAX, i32::MAX - 3] {
        refused!(Param, ctx.diag_mask_inf(x, n_past), "{n_past}");
    }
    refused!(Shape, ctx.diag_mask_inf(ctx.transpose(x).unwrap(), 0));
    refused!(DType, ctx.diag_mask_inf(ctx.input("h", DType::F16, [6, 4]).unwrap(), 0));
}

#[test]
fn cross_entropy_is_that_of_plain_rust() {
    for shape in [ne([1]), ne([10]), ne([10, 7]), ne([5, 3, 2, 2])] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (logits, x) = lab.plain(&Array::sample(shape, 4, -3.0, 3.0));
        let (labels, of) = lab.plain(&Array::sample(shape, 5, 0.0, 1.0));
        let y = ctx.cross_entropy_loss(logits, labels).unwrap();
        let shares = x.rows(|r| soft_max(r, None));
        let sum: f64 = shares.data.iter().zip(&of.data).map(|(p, l)| -l * p.ln()).sum();
        let want = Array { ne: ne([1]), data: vec![sum / (shape[1] * shape[2] * shape[3]) as f64] };
        assert_close(&lab.run(y).unwrap(), &want, 2e-5, &format!("{shape:?}"));
    }
}

#[test]
fn h10_cross_entropy_gets_rows_that_lie_as_its_kernel_walks() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 3, 2]).unwrap();
    let swapped = ctx.permute(ctx.input("y", DType::F32, [4, 2, 3]).unwrap(), [0, 2, 1, 3]).unwrap();
    refused!(Shape, ctx.cross_entropy_loss(x, swapped));
    refused!(Shape, ctx.cross_entropy_loss(swapped, x));
    // One row to a plane: ggml calls it contiguous whatever the second stride is.
    let single = |name| ctx.permute(ctx.input(name, DType::F32, [4, 3, 1]).unwrap(), [0, 2, 1, 3]).unwrap();
    refused!(Shape, ctx.cross_entropy_loss(single("a"), single("b")));
    let other = ctx.input("z", DType::F32, [4, 6]).unwrap();
    refused!(Shape, ctx.cross_entropy_loss(x, other));
    let half = ctx.input("h", DType::F16, [4, 3, 2]).unwrap();
    refused!(DType, ctx.cross_entropy_loss(x, half));
    refused!(DType, ctx.cross_entropy_loss(half, x));
}
