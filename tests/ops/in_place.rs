//! In-place functions: their results, that they write nothing else, and refused operands.

use ggml::prelude::*;
use ggml::{
    Result,
    ops::{SetOptions, UnaryOp},
};
use testkit::encode::{decode, encode};

use crate::support::{Array, Lab, assert_close, ne, precision, refused};
use crate::unary::{Build, definition};

type Definition = fn(f64) -> f64;

/// In-place functions of one operand, each with the one that makes a new tensor.
const PAIRS: &[(&str, Build, Build)] = &[
    ("abs", |c, a| c.abs(a), |c, a| c.abs_inplace(a)),
    ("ceil", |c, a| c.ceil(a), |c, a| c.ceil_inplace(a)),
    ("cos", |c, a| c.cos(a), |c, a| c.cos_inplace(a)),
    ("elu", |c, a| c.elu(a), |c, a| c.elu_inplace(a)),
    ("exp", |c, a| c.exp(a), |c, a| c.exp_inplace(a)),
    ("expm1", |c, a| c.expm1(a), |c, a| c.expm1_inplace(a)),
    ("floor", |c, a| c.floor(a), |c, a| c.floor_inplace(a)),
    ("gelu", |c, a| c.gelu(a), |c, a| c.gelu_inplace(a)),
    ("gelu_erf", |c, a| c.gelu_erf(a), |c, a| c.gelu_erf_inplace(a)),
    ("gelu_quick", |c, a| c.gelu_quick(a), |c, a| c.gelu_quick_inplace(a)),
    ("log", |c, a| c.log(a), |c, a| c.log_inplace(a)),
    ("neg", |c, a| c.neg(a), |c, a| c.neg_inplace(a)),
    ("relu", |c, a| c.relu(a), |c, a| c.relu_inplace(a)),
    ("round", |c, a| c.round(a), |c, a| c.round_inplace(a)),
    ("sgn", |c, a| c.sgn(a), |c, a| c.sgn_inplace(a)),
    ("sigmoid", |c, a| c.sigmoid(a), |c, a| c.sigmoid_inplace(a)),
    ("silu", |c, a| c.silu(a), |c, a| c.silu_inplace(a)),
    ("sin", |c, a| c.sin(a), |c, a| c.sin_inplace(a)),
    ("softplus", |c, a| c.softplus(a), |c, a| c.softplus_inplace(a)),
    ("sqr", |c, a| c.sqr(a), |c, a| c.sqr_inplace(a)),
    ("sqrt", |c, a| c.sqrt(a), |c, a| c.sqrt_inplace(a)),
    ("step", |c, a| c.step(a), |c, a| c.step_inplace(a)),
    ("tanh", |c, a| c.tanh(a), |c, a| c.tanh_inplace(a)),
    ("trunc", |c, a| c.trunc(a), |c, a| c.trunc_inplace(a)),
    ("hardswish", |c, a| c.unary(a, UnaryOp::HardSwish), |c, a| c.unary_inplace(a, UnaryOp::HardSwish)),
    ("dup", |c, a| c.dup(a), |c, a| c.dup_inplace(a)),
];

/// Functions with a parameter, all of which support `f32`.
const PARAMETERISED: &[(&str, Build, Definition)] = &[
    ("leaky_relu", |c, a| c.leaky_relu_inplace(a, 0.25), |x| if x > 0.0 { x } else { 0.25 * x }),
    ("scale", |c, a| c.scale_inplace(a, -1.5), |x| -1.5 * x),
    ("scale_bias", |c, a| c.scale_bias_inplace(a, 0.5, 3.0), |x| 0.5 * x + 3.0),
    ("clamp", |c, a| c.clamp_inplace(a, -0.5, 1.25), |x| x.clamp(-0.5, 1.25)),
    ("fill", |c, a| c.fill_inplace(a, 0.75), |_| 0.75),
];

fn of_name(name: &str) -> (Definition, f64) {
    if name == "dup" { (|x| x, 0.0) } else { definition(name) }
}

/// A state with these values.
pub(crate) fn state(values: &Array, dtype: DType) -> (State, Array) {
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", dtype, values.ne.map(|n| n as i64)).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let (bytes, rounded) = encode(dtype, &values.data);
    state.set_bytes("s", &bytes).unwrap();
    (state, Array { ne: values.ne, data: rounded })
}

/// The values of a state.
pub(crate) fn held(state: &State) -> Array {
    let t = state.tensor("s").unwrap();
    Array { ne: t.ne().map(|n| n as usize), data: decode(t.dtype(), &state.read_bytes("s").unwrap()) }
}

const WHOLE: [usize; 4] = [9, 5, 3, 1];
/// A view: elements 2 to 7 of rows 1 to 4 of planes 0 and 2.
const PART: [i64; 3] = [6, 3, 2];

fn in_part([i0, i1, i2, _]: [usize; 4]) -> bool {
    (2..8).contains(&i0) && (1..4).contains(&i1) && i2 != 1
}

fn part_of<'c>(ctx: &'c Context, t: Tensor<'c>) -> Tensor<'c> {
    let [nb0, nb1, nb2, _] = t.nb();
    ctx.view(t, PART, [nb1, 2 * nb2, 4 * nb2], 2 * nb0 + nb1).unwrap()
}

/// Runs `build` on a whole tensor and on a view, of a result and of a state, and compares the whole tensor afterwards.
#[track_caller]
fn check(name: &str, dtype: DType, build: Build, f: Definition, inexact: f64, parts: bool) {
    let values = Array::sample(WHOLE, 11, 0.1, 3.5);
    let values = if matches!(name, "log" | "sqrt") { values } else { values.map(|x| x - 1.8) };
    let tolerance = precision(dtype).max(inexact);
    for (part, threads) in [(false, 2), (false, 1), (true, 3)] {
        if part && !parts {
            continue;
        }
        let context = format!("{name} of {dtype}, of a part: {part}");
        let after =
            |before: &Array| Array::of(before.ne, |i| if part && !in_part(i) { before.at(i) } else { f(before.at(i)) });
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, threads);
        let (x, rounded) = lab.operand(&values, dtype, crate::support::Layout::Plain);
        let t = ctx.cont(x).unwrap();
        let y = build(&ctx, if part { part_of(&ctx, t) } else { t }).unwrap();
        assert!(y.is_view(), "{context}");
        // The result comes first, so that the tensor is copied after the write.
        let copy = ctx.cont(y).unwrap();
        let got = lab.run_all(&[copy, t]).unwrap();
        assert_close(&got[1], &after(&rounded), tolerance, &format!("{context}, a result"));
        assert_eq!(got[0].data.len(), y.elements(), "{context}");

        let (state, before) = state(&values, dtype);
        let ctx = Context::new();
        let s = state.tensor("s").unwrap();
        let y = build(&ctx, if part { part_of(&ctx, s) } else { s }).unwrap();
        Lab::with_threads(&ctx, threads).run_all(&[ctx.cont(y).unwrap()]).unwrap();
        assert_close(&held(&state), &after(&before), tolerance, &format!("{context}, a state"));
    }
}

#[test]
fn unary_inplace_writes_only_its_operand() {
    for (name, _, build) in PAIRS {
        let (f, inexact) = of_name(name);
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            check(name, dtype, *build, f, inexact, true);
        }
    }
    for (name, build, f) in PARAMETERISED {
        check(name, DType::F32, *build, *f, 0.0, false);
    }
    check("leaky_relu", DType::F16, PARAMETERISED[0].1, PARAMETERISED[0].2, 0.0, false);
    check("scale", DType::BF16, PARAMETERISED[1].1, PARAMETERISED[1].2, 0.0, false);
    check("clamp", DType::F16, PARAMETERISED[3].1, PARAMETERISED[3].2, 0.0, false);
    check("fill", DType::F16, PARAMETERISED[4].1, PARAMETERISED[4].2, 0.0, false);
}

/// In-place results equal those in new tensors, bit by bit.
#[test]
fn inplace_operations_equal_their_counterparts() {
    for (name, beside, build) in PAIRS {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, _) = lab.plain(&Array::sample(ne([37, 3]), 5, 0.1, 3.0));
        let y = build(&ctx, ctx.cont(x).unwrap()).unwrap();
        let got = lab.run_all(&[beside(&ctx, x).unwrap(), ctx.cont(y).unwrap()]).unwrap();
        assert_eq!(got[0], got[1], "{name}");
    }
}

/// Two operands. Only the second one's shape matters to the checks.
type BuildTwo = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>) -> Result<Tensor<'c>>;

const OF_TWO: &[(&str, BuildTwo)] = &[
    ("add", |c, a, b| c.add_inplace(a, b)),
    ("sub", |c, a, b| c.sub_inplace(a, b)),
    ("mul", |c, a, b| c.mul_inplace(a, b)),
    ("div", |c, a, b| c.div_inplace(a, b)),
    ("add1", |c, a, b| c.add1_inplace(a, b)),
    ("set", |c, a, b| c.set_inplace(a, b, SetOptions::new(0))),
    ("set_1d", |c, a, b| c.set_1d_inplace(a, b, 0)),
    ("set_2d", |c, a, b| c.set_2d_inplace(a, b, 16, 0)),
    ("acc", |c, a, b| c.acc_inplace(a, b, SetOptions::new(0))),
];

#[test]
fn inplace_operations_refuse_weights_and_inputs() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4, 2]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let ctx = Context::new();
    let w = weights.tensor("w").unwrap();
    let x = ctx.input("x", DType::F32, [4, 2]).unwrap();
    let one = ctx.input("one", DType::F32, [1]).unwrap();
    let flat = |t| ctx.reshape(t, [8]).unwrap();
    let builds = PAIRS.iter().map(|(name, _, build)| (name, build));
    for (name, build) in builds.chain(PARAMETERISED.iter().map(|(name, build, _)| (name, build))) {
        refused!(Frozen, build(&ctx, w), "{name}");
        refused!(Frozen, build(&ctx, flat(w)), "{name}");
        refused!(Shape, build(&ctx, x), "{name}");
        refused!(Shape, build(&ctx, flat(x)), "{name}");
    }
    for (name, build) in OF_TWO {
        refused!(Frozen, build(&ctx, w, one), "{name}");
        refused!(Frozen, build(&ctx, flat(w), one), "{name}");
        refused!(Shape, build(&ctx, x, one), "{name}");
        refused!(Shape, build(&ctx, flat(x), one), "{name}");
        assert!(build(&ctx, ctx.cont(x).unwrap(), one).is_ok(), "{name}");
    }
}

/// In-place operations are ordered only by their results, whose readers see all earlier writes.
#[test]
fn inplace_operations_run_in_order() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::sample(ne([33, 4]), 5, 0.5, 2.0));
    let t = ctx.sqr(x).unwrap();
    let t = ctx.log_inplace(t).unwrap();
    let t = ctx.scale_inplace(t, 0.5).unwrap();
    let t = ctx.add_inplace(t, x).unwrap();
    let t = ctx.mul_inplace(t, t).unwrap();
    let want = values.map(|x| (x.ln() + x).powi(2));
    let got = lab.run_all(&[ctx.neg(t).unwrap(), ctx.neg(ctx.cont(t).unwrap()).unwrap()]).unwrap();
    for got in got {
        assert_close(&got, &want.map(|x| -x), 2e-5, "in place");
    }
}
