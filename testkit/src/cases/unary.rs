//! Functions of each element.

use ggml::ops::UnaryOp;

use super::case::{Case, Operand, input, of};
use super::each::{Each, Make, Param, Second};
use super::row::{Refused, Row};
use super::{F16, F32, FLAT, PLAIN};
use crate::erf::gelu_erf;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (0.797_884_560_802_865_4 * x * (1.0 + 0.044_715 * x * x)).tanh())
}

pub fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(1.702 * x)
}

pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub fn relu(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

fn hardsigmoid(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

fn sgn(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }
}

/// A row without parameters: the builder, its twin in place, what else the tests know, and the function.
macro_rules! function {
    ($name:ident $op:literal, $f:expr $(, $field:ident: $value:expr)*) => {
        Each { $($field: $value,)* ..Each::new(|c, t, _| c.$name(t[0]), |x, _| { let f: fn(f64) -> f64 = $f; f(x[0]) }) }
            .row(stringify!($name), $op)
    };
    ($name:ident / $in_place:ident $op:literal, $f:expr $(, $field:ident: $value:expr)*) => {
        function!(
            $name $op, $f
            , in_place: { let make: Make = |c, t, _| c.$in_place(t[0]); Some((stringify!($in_place), make)) }
            $(, $field: $value)*
        )
    };
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::from(one());
    rows.extend(smooth());
    rows.extend(gates());
    rows.extend(parameterised());
    rows.extend(others());
    rows
}

fn one() -> [Row; 10] {
    [
        function!(abs / abs_inplace "UNARY", f64::abs, error: 1e-6, must: true, slope: Some(0.1)),
        function!(ceil / ceil_inplace "UNARY", f64::ceil, error: 0.0),
        function!(floor / floor_inplace "UNARY", f64::floor, error: 0.0),
        function!(neg / neg_inplace "UNARY", |x| -x, error: 0.0, must: true, slope: Some(0.0)),
        function!(relu / relu_inplace "UNARY", relu, error: 0.0, must: true, slope: Some(0.1)),
        function!(round / round_inplace "UNARY", f64::round, error: 0.0),
        function!(sgn / sgn_inplace "UNARY", sgn, error: 0.0, must: true),
        function!(sqr / sqr_inplace "SQR", |x| x * x, error: 1e-6, must: true, slope: Some(0.3)),
        function!(step / step_inplace "UNARY", |x| if x > 0.0 { 1.0 } else { 0.0 }, error: 0.0, must: true),
        function!(trunc / trunc_inplace "UNARY", f64::trunc, error: 0.0),
    ]
}

fn smooth() -> [Row; 9] {
    [
        function!(cos / cos_inplace "COS", f64::cos, must: true, slope: Some(0.5)),
        function!(elu / elu_inplace "UNARY", |x| if x > 0.0 { x } else { x.exp_m1() }),
        function!(exp / exp_inplace "UNARY", f64::exp, must: true, slope: Some(0.0)),
        function!(expm1 / expm1_inplace "UNARY", f64::exp_m1, slope: Some(0.0)),
        function!(log / log_inplace "LOG", f64::ln, limits: (0.1, 3.5), must: true, slope: Some(0.8)),
        function!(sin / sin_inplace "SIN", f64::sin, must: true, slope: Some(0.5)),
        function!(
            softplus / softplus_inplace "UNARY",
            |x| if x > 20.0 { x } else { x.exp().ln_1p() },
            slope: Some(0.1)
        ),
        function!(
            sqrt / sqrt_inplace "SQRT", f64::sqrt, error: 1e-6, limits: (0.1, 3.5), must: true, slope: Some(0.8)
        ),
        function!(tanh / tanh_inplace "UNARY", f64::tanh, must: true),
    ]
}

fn gates() -> [Row; 7] {
    [
        function!(gelu / gelu_inplace "UNARY", gelu, error: 2e-3, rough: true, must: true),
        function!(gelu_erf / gelu_erf_inplace "UNARY", gelu_erf, error: 1e-3),
        function!(gelu_quick / gelu_quick_inplace "UNARY", gelu_quick, error: 2e-3, rough: true, must: true),
        function!(hardsigmoid "UNARY", hardsigmoid, error: 1e-6, must: true),
        function!(hardswish "UNARY", |x| x * hardsigmoid(x), error: 1e-6, must: true),
        function!(sigmoid / sigmoid_inplace "UNARY", sigmoid, must: true),
        function!(silu / silu_inplace "UNARY", silu, must: true, slope: Some(0.1)),
    ]
}

const FACTOR: Param = Param { usual: -1.5, from: -2.0, to: 2.0 };
const BIAS: Param = Param { usual: 3.0, from: -2.0, to: 2.0 };
const SLOPE: Param = Param { usual: 0.25, from: -1.0, to: 1.0 };
const LEAST: Param = Param { usual: -0.5, from: -2.0, to: 0.5 };
const MOST: Param = Param { usual: 1.25, from: 0.0, to: 2.0 };

fn parameterised() -> Vec<Row> {
    let leaky_relu = Each {
        params: &[SLOPE],
        in_place: Some(("leaky_relu_inplace", |c, t, p| c.leaky_relu_inplace(t[0], p[0]))),
        types: &[F32, F16],
        layouts: PLAIN,
        error: 1e-6,
        must: true,
        ..Each::new(|c, t, p| c.leaky_relu(t[0], p[0]), |x, p| if x[0] > 0.0 { x[0] } else { p[0] * x[0] })
    };
    let scale = Each {
        params: &[FACTOR],
        in_place: Some(("scale_inplace", |c, t, p| c.scale_inplace(t[0], p[0]))),
        types: &[F32, super::BF16],
        layouts: FLAT,
        error: 1e-6,
        must: true,
        slope: Some(0.1),
        ..Each::new(|c, t, p| c.scale(t[0], p[0]), |x, p| p[0] * x[0])
    };
    let scale_bias = Each {
        params: &[FACTOR, BIAS],
        in_place: Some(("scale_bias_inplace", |c, t, p| c.scale_bias_inplace(t[0], p[0], p[1]))),
        make: |c, t, p| c.scale_bias(t[0], p[0], p[1]),
        f: |x, p| p[0] * x[0] + p[1],
        ..scale
    };
    let clamp = Each {
        params: &[LEAST, MOST],
        in_place: Some(("clamp_inplace", |c, t, p| c.clamp_inplace(t[0], p[0], p[1]))),
        types: &[F32, F16],
        layouts: FLAT,
        error: 1e-6,
        must: true,
        ..Each::new(|c, t, p| c.clamp(t[0], p[0], p[1]), |x, p| x[0].max(p[0]).min(p[1]))
    };
    let mut clamp = clamp.row("clamp", "CLAMP").learns();
    for (min, max) in [(1.0, 0.5), (f32::NAN, 0.5), (0.5, f32::NAN)] {
        clamp = clamp.refuses(Refused::Param, move |c| c.clamp(input(c, F32, [4]), min, max));
    }
    vec![
        leaky_relu.row("leaky_relu", "LEAKY_RELU").learns(),
        scale.row("scale", "SCALE"),
        scale_bias.row("scale_bias", "SCALE"),
        clamp,
    ]
}

fn others() -> Vec<Row> {
    let silu_back = Each {
        second: Second::Same,
        types: &[F32, F16],
        layouts: PLAIN,
        error: 1e-4,
        ..Each::new(
            |c, t, _| c.silu_back(t[0], t[1]),
            |x, _| x[0] * sigmoid(x[1]) * (1.0 + x[1] * (1.0 - sigmoid(x[1]))),
        )
    };
    let silu_back = silu_back
        .row("silu_back", "SILU_BACK")
        .no_meta()
        .refuses(Refused::Shape, |c| c.silu_back(input(c, F32, [4, 2]), input(c, F32, [4, 3])))
        .refuses(Refused::Shape, |c| c.silu_back(input(c, F32, [4, 1]), input(c, F32, [4, 2])))
        .refuses(Refused::Shape, |c| {
            c.silu_back(input(c, F32, [4, 3, 2]), c.permute(input(c, F32, [4, 2, 3]), [0, 2, 1, 3])?)
        })
        .refuses(Refused::DType, |c| c.silu_back(input(c, F32, [4, 2]), input(c, F16, [4, 2])));
    let all = UnaryOp::ALL.iter().flat_map(|&op| [F32, F16].map(|dtype| (op, dtype)));
    let chosen = |x: Operand, op| {
        let case = Case::new([x], move |c, t| c.unary(t[0], op)).with(op).near(2e-3);
        case.in_place(move |c, t| c.unary_inplace(t[0], op))
    };
    let unary = Row::new("unary", "UNARY")
        .all(all, |row, (op, dtype)| row.with(chosen(of(dtype, [67, 5, 3, 2]), op)))
        .drawn(move |s| chosen(s.real(), s.one(UnaryOp::ALL)))
        .in_place("unary_inplace", |c, t| c.unary_inplace(t[0], UnaryOp::Abs))
        .learns();
    vec![silu_back, unary, xielu().row("xielu", "UNARY")]
}

/// `xIELU` from its paper: the slope is `2 p x + beta` above 0, and `n (exp(x) - 1) + beta` below, whose integral it is.
fn xielu() -> Each {
    const PART: Param = Param { usual: 0.8, from: 0.0, to: 1.0 };
    const LEAST: Param = Param { usual: -1e-6, from: -1e-3, to: 0.0 };
    Each {
        params: &[PART, Param { usual: 0.6, ..PART }, Param { usual: 0.5, ..PART }, LEAST],
        layouts: PLAIN,
        error: 1e-4,
        ..Each::new(
            |c, t, p| c.xielu(t[0], p[0], p[1], p[2], p[3]),
            |x, p| {
                let softplus = |x: f64| x.exp().ln_1p();
                let (x, n, beta) = (x[0], p[2] + softplus(p[0]), p[2]);
                if x > 0.0 { softplus(p[1]) * x * x + beta * x } else { n * (x.min(p[3]).exp_m1() - x) + beta * x }
            },
        )
    }
}
