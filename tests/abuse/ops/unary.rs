//! Functions of each element.

use super::{Op, op};
use crate::draw::build;

/// An operation of one operand of floats, its function, and to what part of operand and result kernels compute it.
macro_rules! unary {
    ($($name:ident $tolerance:literal $f:expr;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let a = p.real();
                let t = build!(p, $name(a.t));
                Ok(p.map(t, &a, $tolerance, $f))
            }),
        )*]
    };
}

pub(super) const OPS: &[Op] = &[
    op("leaky_relu", |p| {
        let (a, slope) = (p.real(), p.float(-1.0, 1.0));
        let t = build!(p, leaky_relu(a.t, slope));
        Ok(p.map(t, &a, 1e-6, |x| if x > 0.0 { x } else { f64::from(slope) * x }))
    }),
    op("scale", |p| {
        let (a, factor) = (p.real(), p.float(-2.0, 2.0));
        let t = build!(p, scale(a.t, factor));
        Ok(p.map(t, &a, 1e-6, |x| f64::from(factor) * x))
    }),
    op("scale_bias", |p| {
        let (a, factor, bias) = (p.real(), p.float(-2.0, 2.0), p.float(-2.0, 2.0));
        let t = build!(p, scale_bias(a.t, factor, bias));
        Ok(p.map(t, &a, 1e-6, |x| f64::from(factor) * x + f64::from(bias)))
    }),
    op("clamp", |p| {
        let (a, min, max) = (p.real(), p.float(-2.0, 0.5), p.float(0.0, 2.0));
        let t = build!(p, clamp(a.t, min, max));
        Ok(p.map(t, &a, 1e-6, |x| x.max(min.into()).min(max.into())))
    }),
];

pub(super) const TABLE: &[Op] = unary! {
    abs 1e-6 f64::abs;
    ceil 0.0 f64::ceil;
    cos 1e-5 f64::cos;
    elu 1e-5 |x| if x > 0.0 { x } else { x.exp_m1() };
    exp 1e-5 f64::exp;
    expm1 1e-5 f64::exp_m1;
    floor 0.0 f64::floor;
    gelu 2e-3 |x| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * x * (1.0 + 0.044_715 * x * x)).tanh());
    gelu_erf 1e-3 |x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
    gelu_quick 2e-3 |x| x / (1.0 + (-1.702 * x).exp());
    hardsigmoid 1e-6 |x| ((x + 3.0) / 6.0).clamp(0.0, 1.0);
    hardswish 1e-6 |x| x * ((x + 3.0) / 6.0).clamp(0.0, 1.0);
    log 1e-5 f64::ln;
    neg 0.0 |x| -x;
    relu 0.0 |x| if x > 0.0 { x } else { 0.0 };
    round 0.0 f64::round;
    sgn 0.0 |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 };
    sigmoid 1e-5 |x| 1.0 / (1.0 + (-x).exp());
    silu 1e-5 |x| x / (1.0 + (-x).exp());
    sin 1e-5 f64::sin;
    softplus 1e-5 |x| if x > 20.0 { x } else { x.exp().ln_1p() };
    sqr 1e-6 |x| x * x;
    sqrt 1e-6 f64::sqrt;
    step 0.0 |x| if x > 0.0 { 1.0 } else { 0.0 };
    tanh 1e-5 f64::tanh;
    trunc 0.0 f64::trunc;
};

/// The error function, by its series or its continued fraction.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a > 5.0 {
        return x.signum();
    }
    // 2/sqrt(pi) * sum of (-1)^n x^(2n+1) / (n! (2n+1))
    let (mut term, mut sum) = (a, a);
    for n in 1..100 {
        let n = f64::from(n);
        term *= -a * a / n;
        sum += term / (2.0 * n + 1.0);
    }
    x.signum() * sum * std::f64::consts::FRAC_2_SQRT_PI
}
