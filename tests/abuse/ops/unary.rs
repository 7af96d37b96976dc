//! Functions of each element.

use ggml::ops::UnaryOp;

use super::{Op, op};
use crate::draw::build;
use crate::results::{mapped, zipped};

/// An operation of one operand of floats, its twin in place, its function, and to what part of operand and result kernels
/// compute it.
macro_rules! unary {
    ($($name:ident, $inplace:ident, $tolerance:literal $f:expr;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let a = p.real();
                let t = build!(p, $name(a.t));
                Ok(p.map(t, &a, $tolerance, $f))
            }),
            op(stringify!($inplace), |p| {
                let a = p.writable();
                let t = build!(p, $inplace(a.t));
                Ok(p.wrote(t, &a, mapped(&a, $tolerance, $f)))
            }),
        )*]
    };
}

pub(super) const TABLE: &[Op] = unary! {
    abs, abs_inplace, 1e-6 f64::abs;
    ceil, ceil_inplace, 0.0 f64::ceil;
    cos, cos_inplace, 1e-5 f64::cos;
    elu, elu_inplace, 1e-5 |x| if x > 0.0 { x } else { x.exp_m1() };
    exp, exp_inplace, 1e-5 f64::exp;
    expm1, expm1_inplace, 1e-5 f64::exp_m1;
    floor, floor_inplace, 0.0 f64::floor;
    gelu, gelu_inplace, 2e-3 |x| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * x * (1.0 + 0.044_715 * x * x)).tanh());
    gelu_erf, gelu_erf_inplace, 1e-3 testkit::gelu_erf;
    gelu_quick, gelu_quick_inplace, 2e-3 |x| x / (1.0 + (-1.702 * x).exp());
    log, log_inplace, 1e-5 f64::ln;
    neg, neg_inplace, 0.0 |x| -x;
    relu, relu_inplace, 0.0 |x| if x > 0.0 { x } else { 0.0 };
    round, round_inplace, 0.0 f64::round;
    sgn, sgn_inplace, 0.0 |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 };
    sigmoid, sigmoid_inplace, 1e-5 |x| 1.0 / (1.0 + (-x).exp());
    silu, silu_inplace, 1e-5 |x| x / (1.0 + (-x).exp());
    sin, sin_inplace, 1e-5 f64::sin;
    softplus, softplus_inplace, 1e-5 |x| if x > 20.0 { x } else { x.exp().ln_1p() };
    sqr, sqr_inplace, 1e-6 |x| x * x;
    sqrt, sqrt_inplace, 1e-6 f64::sqrt;
    step, step_inplace, 0.0 |x| if x > 0.0 { 1.0 } else { 0.0 };
    tanh, tanh_inplace, 1e-5 f64::tanh;
    trunc, trunc_inplace, 0.0 f64::trunc;
};

pub(super) const OPS: &[Op] = &[
    op("hardsigmoid", |p| {
        let a = p.real();
        let t = build!(p, hardsigmoid(a.t));
        Ok(p.map(t, &a, 1e-6, |x| ((x + 3.0) / 6.0).clamp(0.0, 1.0)))
    }),
    op("hardswish", |p| {
        let a = p.real();
        let t = build!(p, hardswish(a.t));
        Ok(p.map(t, &a, 1e-6, |x| x * ((x + 3.0) / 6.0).clamp(0.0, 1.0)))
    }),
    op("unary", |p| {
        let (a, kind) = (p.real(), p.one(UnaryOp::ALL));
        let t = build!(p, unary(a.t, kind));
        Ok(p.only(t))
    }),
    op("unary_inplace", |p| {
        let (a, kind) = (p.writable(), p.one(UnaryOp::ALL));
        let t = build!(p, unary_inplace(a.t, kind));
        Ok(p.wrote(t, &a, None))
    }),
    op("leaky_relu", |p| {
        let (a, slope) = (p.real(), p.float(-1.0, 1.0));
        let t = build!(p, leaky_relu(a.t, slope));
        Ok(p.map(t, &a, 1e-6, |x| if x > 0.0 { x } else { f64::from(slope) * x }))
    }),
    op("leaky_relu_inplace", |p| {
        let (a, slope) = (p.writable(), p.float(-1.0, 1.0));
        let t = build!(p, leaky_relu_inplace(a.t, slope));
        Ok(p.wrote(t, &a, mapped(&a, 1e-6, |x| if x > 0.0 { x } else { f64::from(slope) * x })))
    }),
    op("scale", |p| {
        let (a, factor) = (p.real(), p.float(-2.0, 2.0));
        let t = build!(p, scale(a.t, factor));
        Ok(p.map(t, &a, 1e-6, |x| f64::from(factor) * x))
    }),
    op("scale_inplace", |p| {
        let (a, factor) = (p.writable(), p.float(-2.0, 2.0));
        let t = build!(p, scale_inplace(a.t, factor));
        Ok(p.wrote(t, &a, mapped(&a, 1e-6, |x| f64::from(factor) * x)))
    }),
    op("scale_bias", |p| {
        let (a, factor, bias) = (p.real(), p.float(-2.0, 2.0), p.float(-2.0, 2.0));
        let t = build!(p, scale_bias(a.t, factor, bias));
        Ok(p.map(t, &a, 1e-6, |x| f64::from(factor) * x + f64::from(bias)))
    }),
    op("scale_bias_inplace", |p| {
        let (a, factor, bias) = (p.writable(), p.float(-2.0, 2.0), p.float(-2.0, 2.0));
        let t = build!(p, scale_bias_inplace(a.t, factor, bias));
        Ok(p.wrote(t, &a, mapped(&a, 1e-6, |x| f64::from(factor) * x + f64::from(bias))))
    }),
    op("clamp", |p| {
        let (a, min, max) = (p.real(), p.float(-2.0, 0.5), p.float(0.0, 2.0));
        let t = build!(p, clamp(a.t, min, max));
        Ok(p.map(t, &a, 1e-6, |x| x.max(min.into()).min(max.into())))
    }),
    op("clamp_inplace", |p| {
        let (a, min, max) = (p.writable(), p.float(-2.0, 0.5), p.float(0.0, 2.0));
        let t = build!(p, clamp_inplace(a.t, min, max));
        Ok(p.wrote(t, &a, mapped(&a, 1e-6, |x| x.max(min.into()).min(max.into()))))
    }),
    op("xielu", |p| {
        let a = p.real();
        let (n, q, beta, eps) = (p.float(0.0, 1.0), p.float(0.0, 1.0), p.float(0.0, 1.0), p.float(-1e-3, 0.0));
        let t = build!(p, xielu(a.t, n, q, beta, eps));
        Ok(p.only(t))
    }),
    op("silu_back", |p| {
        let a = p.real();
        let b = p.operand(a.dtype(), a.ne())?;
        let t = build!(p, silu_back(a.t, b.t));
        let values = zipped(&a, &b, 1e-4, |g, x| {
            let s = 1.0 / (1.0 + (-x).exp());
            g * s * (1.0 + x * (1.0 - s))
        });
        Ok(p.made(t, values.and_then(|(v, e)| crate::model::Model::new(&v, t.dtype(), e))))
    }),
];
