//! Element-wise functions.

use ggml::prelude::*;
use ggml::{Result, ops::UnaryOp};
pub(crate) use testkit::gelu_erf;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

pub(crate) type Build = for<'c> fn(&'c Context, Tensor<'c>) -> Result<Tensor<'c>>;

/// A method, its reference, and its tolerance where ggml uses a table of 16-bit floats.
type Case = (&'static str, Build, fn(f64) -> f64, f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

pub(crate) fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(1.702 * x)
}

pub(crate) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub(crate) fn relu(x: f64) -> f64 {
    x.max(0.0)
}

fn sgn(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

fn hardsigmoid(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

const TABLE: f64 = 2e-3;

const CASES: &[Case] = &[
    ("abs", |c, a| c.abs(a), f64::abs, 0.0),
    ("ceil", |c, a| c.ceil(a), f64::ceil, 0.0),
    ("cos", |c, a| c.cos(a), f64::cos, 0.0),
    ("elu", |c, a| c.elu(a), |x| if x > 0.0 { x } else { x.exp_m1() }, 0.0),
    ("exp", |c, a| c.exp(a), f64::exp, 0.0),
    ("expm1", |c, a| c.expm1(a), f64::exp_m1, 0.0),
    ("floor", |c, a| c.floor(a), f64::floor, 0.0),
    ("gelu", |c, a| c.gelu(a), gelu, TABLE),
    ("gelu_erf", |c, a| c.gelu_erf(a), gelu_erf, 0.0),
    ("gelu_quick", |c, a| c.gelu_quick(a), gelu_quick, TABLE),
    ("hardsigmoid", |c, a| c.hardsigmoid(a), hardsigmoid, 0.0),
    ("hardswish", |c, a| c.hardswish(a), |x| x * hardsigmoid(x), 0.0),
    ("neg", |c, a| c.neg(a), |x| -x, 0.0),
    ("relu", |c, a| c.relu(a), relu, 0.0),
    ("round", |c, a| c.round(a), f64::round, 0.0),
    ("sgn", |c, a| c.sgn(a), sgn, 0.0),
    ("sigmoid", |c, a| c.sigmoid(a), sigmoid, 0.0),
    ("silu", |c, a| c.silu(a), silu, 0.0),
    ("sin", |c, a| c.sin(a), f64::sin, 0.0),
    ("softplus", |c, a| c.softplus(a), |x| x.exp().ln_1p(), 0.0),
    ("sqr", |c, a| c.sqr(a), |x| x * x, 0.0),
    ("step", |c, a| c.step(a), |x| if x > 0.0 { 1.0 } else { 0.0 }, 0.0),
    ("tanh", |c, a| c.tanh(a), f64::tanh, 0.0),
    ("trunc", |c, a| c.trunc(a), f64::trunc, 0.0),
];

/// Functions that are defined for positive numbers only.
const POSITIVE: &[Case] = &[("log", |c, a| c.log(a), f64::ln, 0.0), ("sqrt", |c, a| c.sqrt(a), f64::sqrt, 0.0)];

/// The reference of a function, and its tolerance.
pub(crate) fn definition(name: &str) -> (fn(f64) -> f64, f64) {
    let (_, _, f, inexact) = CASES.iter().chain(POSITIVE).find(|(n, ..)| *n == name).unwrap();
    (*f, *inexact)
}

/// The name of the method for a `UnaryOp`.
fn name(op: UnaryOp) -> &'static str {
    let letters = format!("{op:?}").to_lowercase();
    CASES.iter().map(|(name, ..)| *name).find(|name| name.replace('_', "") == letters).unwrap()
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
                let (f, inexact) = definition(name(op));
                assert_close(got, &rounded.map(f), precision(dtype).max(inexact), &format!("{op:?} of {dtype}"));
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

#[test]
fn silu_back_is_the_gradient() {
    let derivative = |x: f64| sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
    for dtype in [DType::F32, DType::F16] {
        for (shape, threads) in [(ne([1]), 2), (ne([37]), 1), (ne([5, 3, 2, 2]), 3)] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (x, rx) = lab.operand(&numbers(shape, -3.5, 3.5), dtype, Layout::Plain);
            let (grad, rg) = lab.operand(&Array::sample(shape, 9, -2.0, 2.0), dtype, Layout::Plain);
            let got = lab.run(ctx.silu_back(grad, x).unwrap()).unwrap();
            let want = Array::of(shape, |i| rg.at(i) * derivative(rx.at(i)));
            assert_close(&got, &want, precision(dtype), &format!("{dtype} {shape:?}"));
        }
    }
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [4, 2]);
    refused!(Shape, ctx.silu_back(x, of(DType::F32, [4, 3])));
    refused!(Shape, ctx.silu_back(of(DType::F32, [4, 1]), x));
    refused!(DType, ctx.silu_back(x, of(DType::F16, [4, 2])));
    refused!(DType, ctx.silu_back(of(DType::I32, [4, 2]), of(DType::I32, [4, 2])));
    let y = ctx.silu_back(of(DType::BF16, [4, 2]), of(DType::BF16, [4, 2])).unwrap();
    refused!(Unsupported, Lab::new(&ctx).accepted(y));
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

/// Computes all cases of one operand and compares each.
fn check(cases: impl Iterator<Item = &'static Case>, values: &Array, dtype: DType, layout: Layout) {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, rounded) = lab.operand(values, dtype, layout);
    let cases: Vec<_> = cases.collect();
    let outputs: Vec<_> = cases.iter().map(|(_, build, ..)| build(&ctx, x).unwrap()).collect();
    let results = lab.run_all(&outputs).unwrap();
    for (((name, _, reference, inexact), got), &y) in cases.iter().zip(&results).zip(&outputs) {
        assert_eq!((y.ne(), y.dtype()), (x.ne(), dtype), "{name}");
        let context = format!("{name} of {dtype} {:?}, {layout:?}", values.ne);
        assert_close(got, &rounded.map(reference), precision(dtype).max(*inexact), &context);
    }
}

#[test]
fn elementwise_functions_equal_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for layout in Layout::ROWS {
            for shape in [ne([1]), ne([37]), ne([5, 3, 2, 2])] {
                check(CASES.iter(), &numbers(shape, -3.5, 3.5), dtype, layout);
                check(POSITIVE.iter(), &numbers(shape, 0.1, 3.5), dtype, layout);
            }
        }
    }
}

#[test]
fn elementwise_functions_refuse_operands_without_a_kernel() {
    let ctx = Context::new();
    let ints = ctx.input("ints", DType::I32, [4]).unwrap();
    let blocks = ctx.input("blocks", DType::Q8_0, [32]).unwrap();
    let transposed = ctx.transpose(ctx.input("x", DType::F32, [4, 2]).unwrap()).unwrap();
    for (name, build, ..) in CASES.iter().chain(POSITIVE) {
        refused!(DType, build(&ctx, ints), "{name}");
        refused!(DType, build(&ctx, blocks), "{name}");
        refused!(Shape, build(&ctx, transposed), "{name}");
    }
}

/// Scaling, shifting, limiting, and the types for which the CPU has a kernel.
const PARAMETERISED: &[(Case, [DType; 2])] = &[
    (
        ("leaky_relu", |c, a| c.leaky_relu(a, 0.25), |x| if x > 0.0 { x } else { 0.25 * x }, 0.0),
        [DType::F32, DType::F16],
    ),
    (("scale", |c, a| c.scale(a, -1.5), |x| -1.5 * x, 0.0), [DType::F32, DType::BF16]),
    (("scale_bias", |c, a| c.scale_bias(a, 0.5, 3.0), |x| 0.5 * x + 3.0, 0.0), [DType::F32, DType::BF16]),
    (("clamp", |c, a| c.clamp(a, -0.5, 1.25), |x| x.clamp(-0.5, 1.25), 0.0), [DType::F32, DType::F16]),
];

#[test]
fn parameterised_functions_equal_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for shape in [ne([1]), ne([37]), ne([5, 3, 2, 2])] {
            // Before 0.28, all of them took plain operands only.
            for layout in Layout::ROWS.into_iter().filter(|&layout| layout == Layout::Plain || cfg!(ggml_0_28)) {
                let fits = |name: &str| layout == Layout::Plain || name != "leaky_relu";
                let able = PARAMETERISED.iter().filter(|(case, types)| types.contains(&dtype) && fits(case.0));
                check(able.map(|(case, _)| case), &numbers(shape, -3.5, 3.5), dtype, layout);
            }
        }
        for ((name, build, ..), _) in PARAMETERISED.iter().filter(|(_, types)| !types.contains(&dtype)) {
            let ctx = Context::new();
            let y = build(&ctx, ctx.input("x", dtype, [4]).unwrap()).unwrap();
            refused!(Unsupported, Lab::new(&ctx).accepted(y), "{name} of {dtype}");
        }
    }
}

#[test]
fn parameterised_functions_refuse_operands_without_a_kernel() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 2]).unwrap();
    let ints = ctx.input("ints", DType::I32, [4]).unwrap();
    let transposed = ctx.transpose(x).unwrap();
    for ((name, build, ..), _) in PARAMETERISED {
        refused!(DType, build(&ctx, ints), "{name}");
        refused!(Shape, build(&ctx, transposed), "{name}");
    }
    refused!(Param, ctx.clamp(x, 1.0, 0.5));
    refused!(Param, ctx.clamp(x, f32::NAN, 0.5));
    refused!(Param, ctx.clamp(x, 0.5, f32::NAN));
    refused!(Param, ctx.clamp_inplace(ctx.cont(x).unwrap(), 1.0, 0.5));
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

/// The kernels find row `i` at `i * nb[1]`, ignoring the third stride.
#[test]
fn h10_elementwise_functions_require_even_rows() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, _) = lab.plain(&Array::sample(ne([4, 3, 2]), 3, -2.0, 2.0));
    let x3 = ctx.input("x3", DType::F32, [4, 3, 2]).unwrap();
    for t in [
        ctx.permute(x, [0, 2, 1, 3]).unwrap(),
        lab.operand(&Array::sample(ne([4, 3, 2]), 3, 0.0, 1.0), DType::F32, Layout::Gaps).0,
    ] {
        refused!(Shape, ctx.leaky_relu(t, 0.1));
        refused!(Shape, ctx.xielu(t, 0.1, 0.1, 0.1, 0.0));
        refused!(Shape, ctx.silu_back(t, x3));
        refused!(Shape, ctx.silu_back(x3, t));
        let result = ctx.cont(x).unwrap();
        let rows = ctx.permute(result, [0, 2, 1, 3]).unwrap();
        refused!(Shape, ctx.leaky_relu_inplace(rows, 0.1));
        // Since 0.28, these find each row by all strides.
        if cfg!(not(ggml_0_28)) {
            refused!(Shape, ctx.scale(t, 0.1));
            refused!(Shape, ctx.scale_bias(t, 0.1, 1.0));
            refused!(Shape, ctx.clamp_inplace(rows, 0.0, 1.0));
            refused!(Shape, ctx.scale_inplace(rows, 0.1));
            refused!(Shape, ctx.scale_bias_inplace(rows, 0.1, 1.0));
        }
        refused!(Shape, ctx.fill_inplace(rows, 0.1));
    }
}
