//! Functions of each element, and of pairs.

use ggml::prelude::*;

use super::array::Array;
use super::run::{BF16, F16, F32, Layout, Program, rounding};

type Unary = for<'c> fn(&'c Context, Tensor<'c>) -> ggml::Result<Tensor<'c>>;
type Binary = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>) -> ggml::Result<Tensor<'c>>;

/// The error function by its series, which converges for all numbers used here.
pub(crate) fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(crate) fn gelu(x: f64) -> f64 {
    let inner = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn hardsigmoid(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

/// The name, the operation, its definition, whether it is defined for negative numbers, and how far the kernels are
/// allowed to be from it: some use tables of 16-bit floats.
#[rustfmt::skip]
const UNARY: &[(&str, Unary, fn(f64) -> f64, bool, f64)] = &[
    ("abs", |c, a| c.abs(a), f64::abs, true, 0.0),
    ("ceil", |c, a| c.ceil(a), f64::ceil, true, 0.0),
    ("cos", |c, a| c.cos(a), f64::cos, true, 0.0),
    ("elu", |c, a| c.elu(a), |x| if x > 0.0 { x } else { x.exp_m1() }, true, 0.0),
    ("exp", |c, a| c.exp(a), f64::exp, true, 0.0),
    ("expm1", |c, a| c.expm1(a), f64::exp_m1, true, 0.0),
    ("floor", |c, a| c.floor(a), f64::floor, true, 0.0),
    ("gelu", |c, a| c.gelu(a), gelu, true, 2e-3),
    ("gelu_erf", |c, a| c.gelu_erf(a), |x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)), true, 0.0),
    ("gelu_quick", |c, a| c.gelu_quick(a), |x| x * sigmoid(1.702 * x), true, 2e-3),
    ("hardsigmoid", |c, a| c.hardsigmoid(a), hardsigmoid, true, 0.0),
    ("hardswish", |c, a| c.hardswish(a), |x| x * hardsigmoid(x), true, 0.0),
    ("log", |c, a| c.log(a), f64::ln, false, 0.0),
    ("neg", |c, a| c.neg(a), |x| -x, true, 0.0),
    ("relu", |c, a| c.relu(a), |x| x.max(0.0), true, 0.0),
    ("round", |c, a| c.round(a), f64::round, true, 0.0),
    ("sgn", |c, a| c.sgn(a), |x| if x == 0.0 { 0.0 } else { x.signum() }, true, 0.0),
    ("sigmoid", |c, a| c.sigmoid(a), sigmoid, true, 0.0),
    ("silu", |c, a| c.silu(a), |x| x * sigmoid(x), true, 0.0),
    ("sin", |c, a| c.sin(a), f64::sin, true, 0.0),
    ("softplus", |c, a| c.softplus(a), |x| x.exp().ln_1p(), true, 0.0),
    ("sqr", |c, a| c.sqr(a), |x| x * x, true, 0.0),
    ("sqrt", |c, a| c.sqrt(a), f64::sqrt, false, 0.0),
    ("step", |c, a| c.step(a), |x| if x > 0.0 { 1.0 } else { 0.0 }, true, 0.0),
    ("tanh", |c, a| c.tanh(a), f64::tanh, true, 0.0),
    ("trunc", |c, a| c.trunc(a), f64::trunc, true, 0.0),
    ("leaky_relu", |c, a| c.leaky_relu(a, 0.1), |x| if x > 0.0 { x } else { x * f64::from(0.1_f32) }, true, 0.0),
    ("scale", |c, a| c.scale(a, 1.5), |x| 1.5 * x, true, 0.0),
    ("scale_bias", |c, a| c.scale_bias(a, -0.5, 0.25), |x| 0.25 - 0.5 * x, true, 0.0),
    ("clamp", |c, a| c.clamp(a, -0.5, 0.75), |x| x.clamp(-0.5, 0.75), true, 0.0),
    ("cont", |c, a| c.cont(a), |x| x, true, 0.0),
    ("dup", |c, a| c.dup(a), |x| x, true, 0.0),
];

const SHAPES: [[usize; 4]; 4] = [[7, 3, 2, 2], [1, 5, 1, 3], [64, 1, 1, 1], [4, 1, 3, 2]];

/// Which element types and layouts an operation takes, by name.
fn takes(name: &str, dtype: DType, layout: Layout, one_column: bool) -> bool {
    let types = match name {
        "leaky_relu" | "clamp" => dtype != BF16,
        "scale" | "scale_bias" => dtype != F16,
        _ => true,
    };
    let layouts: &[Layout] = match name {
        "cont" | "dup" => &Layout::ANY,
        "leaky_relu" | "scale" | "scale_bias" | "clamp" => &[Layout::PACKED],
        // A row of one element need not have its neighbour beside it for ggml, but for its kernels.
        _ if one_column => &[Layout::PACKED, Layout::PADDED],
        _ => &Layout::ROWS,
    };
    types && layouts.contains(&layout)
}

#[test]
fn functions_of_each_element_are_as_defined() {
    for &(name, op, reference, signed, slack) in UNARY {
        for dtype in [F32, F16, BF16] {
            for (seed, ne) in SHAPES.into_iter().enumerate() {
                for layout in Layout::ANY.into_iter().filter(|&l| takes(name, dtype, l, ne[0] == 1)) {
                    let mut a = Array::noise(ne, 3.5, seed as u64, dtype);
                    if !signed {
                        a = a.map(|x| x.abs() + 0.125).rounded(dtype);
                    }
                    let ctx = Context::new();
                    let p = Program::new(&ctx);
                    let y = op(&ctx, p.laid_out(&a, dtype, layout)).unwrap();
                    assert_eq!(y.dtype(), dtype);
                    p.run(y).assert_near(
                        &a.map(reference),
                        rounding(dtype).max(slack),
                        &format!("{name} {dtype} {layout:?}"),
                    );
                }
            }
        }
    }
}

#[rustfmt::skip]
const BINARY: &[(&str, Binary, fn(f64, f64) -> f64)] = &[
    ("add", |c, a, b| c.add(a, b), |a, b| a + b),
    ("sub", |c, a, b| c.sub(a, b), |a, b| a - b),
    ("mul", |c, a, b| c.mul(a, b), |a, b| a * b),
    ("div", |c, a, b| c.div(a, b), |a, b| a / b),
];

#[test]
fn functions_of_pairs_repeat_the_second() {
    let ne = [6, 4, 2, 3];
    let types = [(F32, F32), (F16, F16), (BF16, BF16), (F16, F32), (BF16, F32)];
    for &(name, op, reference) in BINARY {
        for (ta, tb) in types {
            for nb in [[6, 4, 2, 3], [6, 1, 1, 1], [1, 4, 1, 3], [3, 2, 1, 1], [1, 1, 1, 1]] {
                for (la, lb) in [
                    (Layout::PACKED, Layout::PACKED),
                    (Layout::PADDED, Layout::TRANSPOSED),
                    (Layout::SWAPPED, Layout::MIXED),
                    (Layout::PACKED, Layout::PADDED),
                ] {
                    let a = Array::noise(ne, 2.0, 1, ta);
                    let b = Array::noise(nb, 1.5, 2, tb).map(|x| x + 2.0).rounded(tb);
                    let ctx = Context::new();
                    let p = Program::new(&ctx);
                    let y = op(&ctx, p.laid_out(&a, ta, la), p.laid_out(&b, tb, lb)).unwrap();
                    assert_eq!(y.dtype(), ta);
                    let want = Array::from_fn(ne, |i| reference(a.at(i), b.wrapped(i)));
                    p.run(y).assert_near(&want, rounding(ta), &format!("{name} {ta} {tb} {nb:?} {lb:?}"));
                }
            }
        }
    }
}
