//! Element-wise functions.

use ggml::ops::UnaryOp;
use ggml::prelude::*;
use testkit::cases::each::Each;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

/// The function that a `UnaryOp` is, by the row of the method with its name, and how far kernels may be off.
fn definition(op: UnaryOp) -> Each {
    let letters = format!("{op:?}").to_lowercase();
    let all = testkit::cases::rows().into_iter();
    all.filter(|row| row.name.replace('_', "") == letters).find_map(|row| row.each).unwrap()
}

#[test]
fn unary_equals_the_named_methods() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, rounded) = lab.operand(&numbers(ne([37, 2]), -3.5, 3.5), dtype, Layout::Gaps);
        let outputs: Vec<_> = UnaryOp::ALL.iter().map(|&op| ctx.unary(x, op).unwrap()).collect();
        let in_place = UnaryOp::ALL.iter().map(|&op| ctx.unary_inplace(ctx.cont(x).unwrap(), op).unwrap());
        let copies: Vec<_> = in_place.map(|y| ctx.cont(y).unwrap()).collect();
        for results in [lab.run_all(&outputs).unwrap(), lab.run_all(&copies).unwrap()] {
            for (&op, got) in UnaryOp::ALL.iter().zip(&results) {
                let each = definition(op);
                let want = each.of_arrays(std::slice::from_ref(&rounded));
                assert_close(got, &want, precision(dtype).max(each.off()), &format!("{op:?} of {dtype}"));
            }
        }
    }
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 2]).unwrap();
    refused!(Shape, ctx.unary(ctx.transpose(x).unwrap(), UnaryOp::Relu));
    refused!(DType, ctx.unary(ctx.input("i", DType::I32, [4]).unwrap(), UnaryOp::Relu));
    refused!(Shape, ctx.unary_inplace(x, UnaryOp::Relu), "an input");
}

/// `xIELU` from its paper: the slope is `2 p x + beta` above 0, and `n (exp(x) - 1) + beta` below, whose integral it is.
#[test]
fn xielu_equals_plain_rust() {
    let softplus = |x: f32| f64::from(x).exp().ln_1p();
    for (alpha_n, alpha_p, beta, eps) in [(0.8, 0.8, 0.5, -1e-6), (-0.3, 1.2, 0.25, -0.5), (2.0, -1.0, 0.0, 0.0)] {
        let (p, n) = (softplus(alpha_p), f64::from(beta) + softplus(alpha_n));
        let f = |x: f64| {
            if x > 0.0 {
                p * x * x + f64::from(beta) * x
            } else {
                n * (x.min(f64::from(eps)).exp_m1() - x) + f64::from(beta) * x
            }
        };
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (shape, threads) in [(ne([1]), 2), (ne([37]), 1), (ne([5, 3, 2, 2]), 3)] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (x, rounded) = lab.operand(&numbers(shape, -3.5, 3.5), dtype, Layout::Plain);
                let got = lab.run(ctx.xielu(x, alpha_n, alpha_p, beta, eps).unwrap()).unwrap();
                assert_close(&got, &rounded.map(f), precision(dtype), &format!("{dtype} {shape:?} {beta}"));
            }
        }
    }
}

/// Numbers of all magnitudes, including the breakpoints of functions.
fn numbers(shape: [usize; 4], from: f64, to: f64) -> Array {
    let turning = [0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 3.0, -3.0, 1.0, -1.0];
    let mut a = Array::sample(shape, 7, from, to);
    for (to, from) in a.data.iter_mut().zip(turning.into_iter().filter(|x| *x > from)) {
        *to = from;
    }
    a
}

/// Older versions of ggml did not.
#[test]
fn clamp_keeps_its_operand() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::sample(ne([6, 2]), 3, -2.0, 2.0));
    let before = ctx.neg(x).unwrap();
    let y = ctx.clamp(before, -1.0, 1.0).unwrap();
    let got = lab.run_all(&[y, before, x]).unwrap();
    assert_close(&got[0], &values.map(|x| (-x).clamp(-1.0, 1.0)), 1e-6, "clamped");
    assert_close(&got[1], &values.map(|x| -x), 1e-6, "before");
    assert_close(&got[2], &values, 1e-6, "input");
}
