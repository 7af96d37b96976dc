//! What can't be trained is an error that says why.

use ggml::opt::{AdamW, Optimizer, Sgd, Training};
use ggml::prelude::*;
use ggml::{Conv2d, Custom, Pool, Pool2d, SoftMax};

use super::{cpu, state};

const SHAPE: [i64; 4] = [4, 3, 1, 1];

/// The error of a training of two parameters of [`SHAPE`] by the sum of what `build` makes.
fn refusal(build: impl for<'c> Fn(&'c Context, [Tensor<'c>; 2]) -> ggml::Result<Tensor<'c>>) -> Error {
    let parameters = state(&[SHAPE, SHAPE]);
    let ctx = Context::new();
    let both = ["p0", "p1"].map(|name| parameters.get(name).unwrap());
    let y = build(&ctx, both).unwrap();
    let loss = ctx.sum(y).unwrap();
    let error = Training::new(&ctx, loss, [], both, Sgd::default()).unwrap_err();
    // Nothing is left marked: what can be trained still can.
    let [p, q] = both;
    let loss = ctx.sum(ctx.mul(p, q).unwrap()).unwrap();
    let mut training = Training::new(&ctx, loss, [], both, Sgd::default()).unwrap();
    training.start(&mut cpu()).unwrap().step().unwrap();
    error
}

fn unsupported(
    op: &str,
    reason: &str,
    build: impl for<'c> Fn(&'c Context, [Tensor<'c>; 2]) -> ggml::Result<Tensor<'c>>,
) {
    let error = refusal(build);
    let text = error.to_string();
    assert!(matches!(error, Error::Unsupported { .. }), "{text}");
    assert!(text.starts_with(op) && text.contains(reason), "{text}");
}

#[test]
fn operations_without_a_backward_pass() {
    const NONE: &str = "ggml has no backward pass for it";
    unsupported("norm", NONE, |ctx, [p, q]| ctx.mul(ctx.norm(p, 1e-5)?, q));
    unsupported("gelu", NONE, |ctx, [p, q]| ctx.mul(ctx.gelu(p)?, q));
    unsupported("sigmoid", NONE, |ctx, [p, q]| ctx.mul(ctx.sigmoid(p)?, q));
    unsupported("clamp", NONE, |ctx, [p, q]| ctx.mul(ctx.clamp(p, 0.0, 1.0)?, q));
    unsupported("map_custom1", NONE, |ctx, [p, q]| {
        ctx.map_custom1::<f32>(ctx.mul(p, q)?, Custom::default(), |_, _| {})
    });
    unsupported("custom", NONE, |ctx, [p, q]| ctx.custom::<f32>(&[p, q], [1], Custom::default(), |_, _| {}));
    unsupported("mul_mat_id", NONE, |ctx, [p, q]| {
        let ids = ctx.input("ids", DType::I32, [1, 3])?;
        ctx.mul_mat_id(p, ctx.reshape(q, [4, 1, 3])?, ids)
    });
    unsupported("concat", NONE, |ctx, [p, q]| ctx.concat(p, q, 0));
    unsupported("mean", "several rows", |ctx, [p, q]| ctx.mean(ctx.mul(p, q)?));
    unsupported("sub", "one shape", |ctx, [p, q]| {
        let row = ctx.sum_rows(q)?;
        ctx.sub(p, row)
    });
    unsupported("div", "one shape", |ctx, [p, q]| ctx.div(p, ctx.sum_rows(q)?));
    unsupported("mul_mat", "repeated", |ctx, [p, q]| {
        let matrices = ctx.reshape(q, [4, 1, 3])?;
        ctx.mul_mat(p, matrices)
    });
    unsupported("soft_max", "mask", |ctx, [p, q]| {
        let mut how = SoftMax::default();
        how.mask = Some(q);
        ctx.soft_max_ext(p, how)
    });
    unsupported("cross_entropy_loss", "labels", |ctx, [p, q]| ctx.cross_entropy_loss(p, ctx.soft_max(q)?));
}

#[test]
fn other_types_than_f32() {
    unsupported("cpy", "no backward pass", |ctx, [p, q]| ctx.mul(p, ctx.cast(ctx.cast(q, DType::F16)?, DType::F32)?));
    unsupported("mul_mat", "only passed through f32", |ctx, [p, q]| {
        let half = ctx.cast(ctx.step(p)?, DType::F16)?;
        ctx.mul_mat(half, ctx.mul(p, q)?)
    });
}

/// C would read the gradient that the kernel does not have yet.
#[test]
fn a_kernel_that_is_used_before_its_shape_is() {
    unsupported("im2col", "from a later operation", |ctx, [p, q]| ctx.im2col(q, p, Conv2d::default(), DType::F32));
    unsupported("im2col", "from a later operation", |ctx, [p, q]| {
        let columns = ctx.im2col(q, p, Conv2d::default(), DType::F32)?;
        ctx.add(ctx.sum(ctx.sqr(q)?)?, ctx.sum(columns)?)
    });
}

#[test]
fn a_parameter_that_something_else_writes_to() {
    unsupported("cpy", "it writes to a parameter", |ctx, [p, q]| ctx.mul(ctx.cpy(p, q)?, p));
}

#[test]
fn a_parameter_that_the_loss_does_not_depend_on() {
    for error in [refusal(|ctx, [p, _]| ctx.sqr(p)), refusal(|ctx, [p, q]| ctx.mul(p, ctx.step(q)?))] {
        let text = error.to_string();
        assert!(matches!(error, Error::NotPart { .. }) && text.contains("`p1`"), "{text}");
    }
}

/// A gradient comes back through `transpose` without being copied, and these kernels abort, or read what is not there, where
/// it is not contiguous.
#[test]
fn gradients_that_a_kernel_can_not_read() {
    type Build = for<'c> fn(&'c Context, Tensor<'c>) -> ggml::Result<Tensor<'c>>;
    let table: [(&str, [i64; 4], Build); 5] = [
        ("silu_back", SHAPE, Context::silu),
        ("rms_norm_back", SHAPE, |ctx, p| ctx.rms_norm(p, 1e-5)),
        ("soft_max_back", SHAPE, Context::soft_max),
        ("repeat_back", [4, 1, 1, 1], |ctx, p| ctx.repeat(p, ctx.input("like", DType::F32, SHAPE)?)),
        ("pool_2d_back", [8, 6, 1, 1], |ctx, p| ctx.pool_2d(p, Pool::Max, Pool2d::square(2))),
    ];
    for (kernel, shape, build) in table {
        let parameters = state(&[shape]);
        let p = parameters.get("p0").unwrap();
        let start = |between: Build| {
            let ctx = Context::new();
            let y = between(&ctx, build(&ctx, p)?)?;
            let y = ctx.cont(ctx.transpose(y)?)?;
            let weights = ctx.input("weights", DType::F32, y.shape())?;
            let mut training = Training::new(&ctx, ctx.sum(ctx.mul(y, weights)?)?, [], [p], Sgd::default())?;
            training.start(&mut cpu()).map(drop)
        };
        let error = start(|_, y| Ok(y)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }) && text.starts_with(kernel), "{kernel}: {text}");
        // What the documentation says helps.
        start(|ctx, y| ctx.reshape(y, y.shape())).unwrap_or_else(|e| panic!("{kernel}: {e}"));
        // And what C asserts while it builds is an error as well.
        assert!(matches!(start(Context::cont), Err(Error::Ggml { .. })), "{kernel}");
    }
}

#[test]
fn operands_that_are_none() {
    let parameters = state(&[SHAPE]);
    let mut builder = WeightsBuilder::new();
    builder.tensor("frozen", DType::F32, SHAPE).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("short", DType::F16, SHAPE).unwrap();
    let short = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, SHAPE).unwrap();
    let p = parameters.get("p0").unwrap();
    let loss = ctx.sum(ctx.mul(p, x).unwrap()).unwrap();
    let new = |loss, parameters: &[Tensor<'_>]| Training::new(&ctx, loss, [], parameters, Sgd::default()).unwrap_err();
    assert!(matches!(new(p, &[p]), Error::Shape { .. }), "the loss is more than one number");
    assert!(matches!(new(loss, &[]), Error::Param { name: "parameters", .. }));
    assert!(matches!(new(loss, &[p, p]), Error::Duplicate { .. }));
    assert!(matches!(new(loss, &[x]), Error::NotPart { .. }));
    assert!(matches!(new(loss, &[weights.get("frozen").unwrap()]), Error::Frozen { .. }));
    assert!(matches!(new(loss, &[short.get("short").unwrap()]), Error::DType { .. }));
    let part = ctx.view(p, [4], [16, 48, 48], 0).unwrap();
    assert!(matches!(new(ctx.sum(part).unwrap(), &[part]), Error::Shape { .. }), "a view is no parameter");
    let half = ctx.cast(loss, DType::F16).unwrap();
    assert!(matches!(new(half, &[p]), Error::DType { .. }));
    let [index, ..] = [ctx.argmax(ctx.reshape(p, [12]).unwrap()).unwrap()];
    assert!(matches!(new(index, &[p]), Error::DType { .. }));
}

#[test]
fn optimizers_out_of_range() {
    let good = AdamW::default();
    let bad: Vec<(&str, Optimizer)> = vec![
        ("alpha", AdamW { alpha: 0.0, ..good }.into()),
        ("alpha", AdamW { alpha: f32::NAN, ..good }.into()),
        ("alpha", AdamW { alpha: f32::INFINITY, ..good }.into()),
        ("beta1", AdamW { beta1: 1.0, ..good }.into()),
        ("beta1", AdamW { beta1: -0.1, ..good }.into()),
        ("beta2", AdamW { beta2: 1.0, ..good }.into()),
        ("beta2", AdamW { beta2: f32::NAN, ..good }.into()),
        ("eps", AdamW { eps: 0.0, ..good }.into()),
        ("wd", AdamW { wd: 1.5, ..good }.into()),
        ("alpha", Sgd { alpha: -1.0, wd: 0.0 }.into()),
        ("wd", Sgd { alpha: 1.0, wd: -0.5 }.into()),
    ];
    let parameters = state(&[SHAPE]);
    let ctx = Context::new();
    let p = parameters.get("p0").unwrap();
    let loss = ctx.sum(p).unwrap();
    let mut adam = Training::new(&ctx, loss, [], [p], good).unwrap();
    let mut sgd = Training::new(&ctx, loss, [], [p], Sgd::default()).unwrap();
    for (parameter, optimizer) in bad {
        let of = |result: Result<(), Error>| match result {
            Err(Error::Param { name, .. }) => name,
            other => panic!("{optimizer:?}: {other:?}"),
        };
        assert_eq!(of(Training::new(&ctx, loss, [], [p], optimizer).map(drop)), parameter, "{optimizer:?}");
        let training = if matches!(optimizer, Optimizer::Sgd(_)) { &mut sgd } else { &mut adam };
        assert_eq!(of(training.set_optimizer(optimizer)), parameter, "{optimizer:?}");
    }
    assert!(matches!(adam.set_optimizer(Sgd::default()), Err(Error::Param { name: "optimizer", .. })));
    assert_eq!(adam.optimizer(), Optimizer::AdamW(good));
}
