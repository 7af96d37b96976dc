//! Softmax and cross entropy. What they compute is in the table.

use ggml::ops::SoftMaxOptions;
use ggml::prelude::*;

use testkit::cases::softmax::soft_max;

use crate::support::{Array, Lab, assert_close, assert_in_place, derived, ne, refused, weighted};

/// One logit and one sink, whose memory the allocator could give to the result.
#[test]
fn soft_max_sinks_are_not_overwritten() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    for (logit, sink) in [(0.5, 1.5), (2.0, -1.0)] {
        let (x, _) = lab.plain(&Array::of([1; 4], |_| logit));
        let (s, _) = lab.plain(&Array::of([1; 4], |_| -sink));
        let how = SoftMaxOptions::new().with_sinks(ctx.neg(s).unwrap());
        let got = lab.run(ctx.soft_max_ext(x, how).unwrap()).unwrap();
        assert_close(&got, &Array { ne: [1; 4], data: soft_max(&[logit], Some(sink)) }, 1e-6, "one of one");
    }
}

#[test]
fn soft_max_ext_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [8, 4, 6, 2]);
    refused!(DType, ctx.soft_max(of(DType::F16, [8, 4, 1, 1])));
    refused!(Shape, ctx.soft_max(ctx.transpose(x).unwrap()));
    refused!(Shape, ctx.soft_max(ctx.permute(x, [0, 2, 1, 3]).unwrap()));
    for scale in [f32::NAN, f32::INFINITY] {
        refused!(Param, ctx.soft_max_ext(x, SoftMaxOptions::new().with_scale(scale)));
    }
    let mask = of(DType::F32, [8, 4, 1, 1]);
    for bias in [-1.0, f32::NAN, f32::INFINITY] {
        let how = SoftMaxOptions::new().with_mask(mask).with_max_bias(bias);
        refused!(Param, ctx.soft_max_ext(x, how), "{bias}");
    }
    refused!(Param, ctx.soft_max_ext(x, SoftMaxOptions::new().with_max_bias(1.0)), "a slope of no mask");
    let masked = |mask| {
        let how = SoftMaxOptions::new().with_mask(mask);
        ctx.soft_max_ext(x, how)
    };
    refused!(DType, masked(of(DType::BF16, [8, 4, 1, 1])));
    refused!(DType, masked(of(DType::I32, [8, 4, 1, 1])));
    for shape in [[7, 4, 1, 1], [9, 4, 1, 1], [8, 3, 1, 1], [8, 4, 4, 1], [8, 4, 12, 1], [8, 4, 1, 3]] {
        refused!(Shape, masked(of(DType::F32, shape)), "{shape:?}");
    }
    refused!(Shape, masked(ctx.transpose(of(DType::F32, [4, 8, 1, 1])).unwrap()));
    let sunk = |sinks| {
        let how = SoftMaxOptions::new().with_sinks(sinks);
        ctx.soft_max_ext(x, how)
    };
    refused!(DType, sunk(of(DType::F16, [6, 1, 1, 1])));
    for shape in [[5, 1, 1, 1], [7, 1, 1, 1], [6, 2, 1, 1], [1, 6, 1, 1]] {
        refused!(Shape, sunk(of(DType::F32, shape)), "{shape:?}");
    }
    assert!(sunk(of(DType::F32, [6, 1, 1, 1])).is_ok());
}

#[test]
fn h10_cross_entropy_loss_requires_contiguous_operands() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 3, 2]).unwrap();
    let swapped = ctx.permute(ctx.input("y", DType::F32, [4, 2, 3]).unwrap(), [0, 2, 1, 3]).unwrap();
    refused!(Shape, ctx.cross_entropy_loss(x, swapped));
    refused!(Shape, ctx.cross_entropy_loss(swapped, x));
    // One row per plane: ggml calls it contiguous for any second stride.
    let single = |name| ctx.permute(ctx.input(name, DType::F32, [4, 3, 1]).unwrap(), [0, 2, 1, 3]).unwrap();
    refused!(Shape, ctx.cross_entropy_loss(single("a"), single("b")));
    let other = ctx.input("z", DType::F32, [4, 6]).unwrap();
    refused!(Shape, ctx.cross_entropy_loss(x, other));
    let half = ctx.input("h", DType::F16, [4, 3, 2]).unwrap();
    refused!(DType, ctx.cross_entropy_loss(x, half));
    refused!(DType, ctx.cross_entropy_loss(half, x));
}

#[test]
fn soft_max_ext_inplace_refuses_operands_inside_its_target() {
    // Operands that share memory with the target would be read while it is written.
    let ctx = Context::new();
    let a = ctx.dup(ctx.input("x", DType::F32, [4, 4, 4]).unwrap()).unwrap();
    let how = SoftMaxOptions::new().with_mask(ctx.view(a, [4, 4], [16, 64, 64], 0).unwrap());
    refused!(Shape, ctx.soft_max_ext_inplace(a, how), "a mask inside the operand");
    let how = SoftMaxOptions::new().with_sinks(ctx.view(a, [4], [16, 16, 16], 32).unwrap());
    refused!(Shape, ctx.soft_max_ext_inplace(a, how), "sinks inside the operand");
    assert!(ctx.soft_max_ext(a, how).is_ok());
}

#[test]
fn soft_max_ext_back_is_the_gradient() {
    for (shape, scale) in [(ne([1]), 1.0), (ne([9]), 0.5), (ne([5, 3, 2, 2]), 2.0)] {
        let x = Array::sample(shape, 4, -1.0, 1.0);
        let of_grad = Array::sample(shape, 5, -1.0, 1.0);
        let forward = |x: &Array| x.map(|x| scale * x).rows(|r| soft_max(r, None));
        let want = derived(&x, |x| weighted(&forward(x), &of_grad));
        let of_y = forward(&x);
        for threads in [1, 2] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (grad, _) = lab.plain(&of_grad);
            let (y, _) = lab.plain(&of_y);
            let got = lab.run(ctx.soft_max_ext_back(grad, y, scale as f32).unwrap()).unwrap();
            assert_close(&got, &want, 1e-5, &format!("{shape:?} {scale}"));
        }
        assert_in_place("soft_max_ext_back_inplace", &of_grad, &want, 1e-5, |lab, grad| {
            lab.ctx.soft_max_ext_back_inplace(grad, lab.plain(&of_y).0, scale as f32)
        });
    }
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [4, 3, 2]);
    let made = ctx.dup(x).unwrap();
    let swapped = ctx.permute(of(DType::F32, [4, 2, 3]), [0, 2, 1, 3]).unwrap();
    for (grad, y) in [(x, of(DType::F32, [4, 2, 3])), (x, swapped), (swapped, x)] {
        refused!(Shape, ctx.soft_max_ext_back(grad, y, 1.0));
        refused!(Shape, ctx.soft_max_ext_back_inplace(grad, y, 1.0));
    }
    for (grad, y) in [(x, of(DType::F16, [4, 3, 2])), (of(DType::F16, [4, 3, 2]), x)] {
        refused!(DType, ctx.soft_max_ext_back(grad, y, 1.0));
    }
    refused!(Param, ctx.soft_max_ext_back(x, x, f32::NAN));
    refused!(Param, ctx.soft_max_ext_back_inplace(made, x, f32::INFINITY));
    let (low, high) =
        (ctx.view(made, [4, 2], [16, 32, 32], 0).unwrap(), ctx.view(made, [4, 2], [16, 32, 32], 16).unwrap());
    refused!(Shape, ctx.soft_max_ext_back_inplace(low, high, 1.0), "one row apart");
    assert!(ctx.soft_max_ext_back_inplace(made, made, 1.0).is_ok());
}

#[test]
fn cross_entropy_loss_back_is_the_gradient() {
    for shape in [ne([1]), ne([10]), ne([10, 7]), ne([5, 3, 2, 2])] {
        // The labels of a row sum to 1, as ggml assumes.
        let labels = Array::sample(shape, 5, 0.0, 1.0).rows(|r| r.iter().map(|x| x / r.iter().sum::<f64>()).collect());
        let logits = Array::sample(shape, 4, -3.0, 3.0);
        let rows = (shape[1] * shape[2] * shape[3]) as f64;
        let loss = |x: &Array| {
            let shares = x.rows(|r| soft_max(r, None));
            shares.data.iter().zip(&labels.data).map(|(p, l)| -l * p.ln()).sum::<f64>() / rows
        };
        let want = derived(&logits, |x| 1.5 * loss(x));
        for threads in [1, 3] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (grad, _) = lab.plain(&Array::of([1; 4], |_| 1.5));
            let (x, l) = (lab.plain(&logits).0, lab.plain(&labels).0);
            let got = lab.run(ctx.cross_entropy_loss_back(grad, x, l).unwrap()).unwrap();
            assert_close(&got, &want, 1e-5, &format!("{shape:?}"));
        }
    }
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let (one, x) = (of(DType::F32, [1, 1, 1]), of(DType::F32, [4, 3, 2]));
    let swapped = ctx.permute(of(DType::F32, [4, 2, 3]), [0, 2, 1, 3]).unwrap();
    let half = of(DType::F16, [4, 3, 2]);
    refused!(Shape, ctx.cross_entropy_loss_back(of(DType::F32, [2, 1, 1]), x, x));
    refused!(Shape, ctx.cross_entropy_loss_back(one, x, of(DType::F32, [4, 6, 1])));
    refused!(Shape, ctx.cross_entropy_loss_back(one, swapped, x));
    refused!(Shape, ctx.cross_entropy_loss_back(one, x, swapped));
    refused!(DType, ctx.cross_entropy_loss_back(of(DType::F16, [1, 1, 1]), x, x));
    refused!(DType, ctx.cross_entropy_loss_back(one, half, x));
    refused!(DType, ctx.cross_entropy_loss_back(one, x, half));
}
