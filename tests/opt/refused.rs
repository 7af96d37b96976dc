//! Computations that can't be trained give an error with a reason.

use ggml::ops::{
    Conv2dOptions, CustomOptions, GluOp, MulMatOptions, Pool2dOptions, PoolOp, RopeMode, RopeOptions, SetOptions,
    SoftMaxOptions,
};
use ggml::opt::{AdamW, BuildType, LossType, OptContext, OptParams, Optimizer, Sgd};
use ggml::prelude::*;

use super::{cpu, state, sum};

const SHAPE: [i64; 4] = [4, 3, 1, 1];

/// The error of training two parameters of [`SHAPE`] on the sum of `build`'s result.
fn refusal(build: impl for<'c> Fn(&'c Context, [Tensor<'c>; 2]) -> ggml::Result<Tensor<'c>>) -> Error {
    let parameters = state(&[SHAPE, SHAPE]);
    let ctx = Context::new();
    let both = ["p0", "p1"].map(|name| parameters.tensor(name).unwrap());
    let y = build(&ctx, both).unwrap();
    let opt = sum(&both, Sgd::new()).unwrap();
    let error = opt.graphs(&ctx, None, y).unwrap_err();
    // No flags are left: a valid computation can still be trained.
    let [p, q] = both;
    let mut opt = opt;
    let graphs = opt.graphs(&ctx, None, ctx.mul(p, q).unwrap()).unwrap();
    opt.alloc(&mut cpu(), &graphs, true).unwrap().eval(None).unwrap();
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
fn training_refuses_operations_without_a_backward_pass() {
    const NONE: &str = "ggml has no backward pass for the operation with";
    unsupported("norm", NONE, |ctx, [p, q]| ctx.mul(ctx.norm(p, 1e-5)?, q));
    unsupported("gelu", NONE, |ctx, [p, q]| ctx.mul(ctx.gelu(p)?, q));
    unsupported("sigmoid", NONE, |ctx, [p, q]| ctx.mul(ctx.sigmoid(p)?, q));
    unsupported("clamp", NONE, |ctx, [p, q]| ctx.mul(ctx.clamp(p, 0.0, 1.0)?, q));
    unsupported("map_custom1", NONE, |ctx, [p, q]| {
        ctx.map_custom1::<f32>(ctx.mul(p, q)?, CustomOptions::new(), |_, _| {})
    });
    unsupported("custom", NONE, |ctx, [p, q]| ctx.custom::<f32>(&[p, q], [1], CustomOptions::new(), |_, _| {}));
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
    unsupported("soft_max", "mask", |ctx, [p, q]| {
        let how = SoftMaxOptions::new().with_mask(q);
        ctx.soft_max_ext(p, how)
    });
    unsupported("cross_entropy_loss", "labels", |ctx, [p, q]| ctx.cross_entropy_loss(p, ctx.soft_max(q)?));
}

#[test]
fn h12_training_refuses_operands_unknown_to_the_backward_pass() {
    unsupported("add1", "use `add`", |ctx, [p, q]| ctx.add1(p, ctx.sum(q)?));
    unsupported("mul_mat", "transposed", |ctx, [p, q]| {
        let [p, q] = [ctx.reshape(p, [3, 4])?, ctx.transpose(q)?];
        ctx.mul_mat(p, q)
    });
    unsupported("mul_mat", "fourth dimension", |ctx, [p, q]| {
        let [p, q] = [ctx.reshape(p, [2, 3, 2])?, ctx.reshape(q, [2, 1, 2, 3])?];
        ctx.mul_mat(p, q)
    });
    unsupported("mul_mat", "hint", |ctx, [p, q]| {
        let square = ctx.reshape(ctx.view(ctx.mul(p, q)?, [4], [16; 3], 0)?, [2, 2])?;
        let how = MulMatOptions::new().with_hadamard(true);
        ctx.mul_mat_ext(square, square, how)
    });
    unsupported("swiglu", "swiglu_split", |ctx, [p, q]| ctx.glu(ctx.mul(p, q)?, GluOp::Swiglu, false));
    unsupported("geglu", "swiglu_split", |ctx, [p, q]| ctx.glu_split(p, q, GluOp::Geglu));
    unsupported("get_rows", "`get_rows` of a matrix", |ctx, [p, q]| {
        let rows = ctx.input("rows", DType::I32, [1, 3])?;
        ctx.get_rows(ctx.reshape(ctx.mul(p, q)?, [4, 1, 3])?, rows)
    });
    unsupported("rope", "offset", |ctx, [p, q]| {
        let how = RopeOptions::new(2, RopeMode::NeoX).with_offset(2);
        ctx.rope_ext(ctx.mul(p, q)?, ctx.input("positions", DType::I32, [1])?, how)
    });
    unsupported("rope", "frequency factors", |ctx, [p, q]| {
        let how = RopeOptions::new(4, RopeMode::NeoX).with_freq_factors(ctx.reshape(ctx.mul(p, q)?, [12])?);
        ctx.rope_ext(p, ctx.input("positions", DType::I32, [1])?, how)
    });
    unsupported("soft_max", "sinks", |ctx, [p, q]| {
        let how = SoftMaxOptions::new().with_sinks(ctx.reshape(ctx.sum(ctx.step(p)?)?, [1])?);
        ctx.soft_max_ext(ctx.mul(p, q)?, how)
    });
    unsupported("view", "not contiguous", |ctx, [p, q]| {
        let turned = ctx.transpose(ctx.mul(p, q)?)?;
        ctx.view(turned, [3], [12, 12, 12], 0)
    });
    unsupported("view", "past its source", |ctx, [p, q]| {
        let row = ctx.view(ctx.mul(p, q)?, [4], [16, 16, 16], 0)?;
        ctx.view(row, [4], [16, 16, 16], 16)
    });
    unsupported("view", "a stride of 0", |ctx, [p, q]| ctx.view(ctx.mul(p, q)?, [4], [0, 0, 0], 0));
    unsupported("win_part", "no backward pass", |ctx, [p, q]| ctx.win_part(ctx.mul(p, q)?, 2));
}

#[test]
fn training_refuses_inplace_operations() {
    unsupported("scale", "in-place", |ctx, [p, q]| ctx.scale_inplace(ctx.mul(p, q)?, 2.0));
    // C looks at all that depends on a parameter, whether a gradient gets there or not.
    unsupported("scale", "in-place", |ctx, [p, q]| {
        let changed = ctx.step(ctx.scale_inplace(ctx.mul(p, q)?, 2.0)?)?;
        ctx.mul(changed, ctx.mul(p, q)?)
    });
    // What is written over here depends on no parameter, but gradients are computed from it.
    unsupported("scale", "overwrites what a gradient", |ctx, [p, q]| {
        let fixed = ctx.dup(ctx.step(p)?)?;
        let product = ctx.mul(ctx.mul(p, q)?, fixed)?;
        ctx.add(product, ctx.scale_inplace(fixed, 2.0)?)
    });
    unsupported("cpy", "overwrites what a gradient", |ctx, [p, q]| {
        let result = ctx.exp(ctx.mul(p, q)?)?;
        let sum = ctx.sum_rows(result)?;
        ctx.add(ctx.cpy(ctx.step(p)?, result)?, sum)
    });
    // The square's gradient would be computed from what the copy wrote over its operand.
    unsupported("cpy", "another operation uses", |ctx, [p, q]| {
        let to = ctx.step(q)?;
        let square = ctx.mul(q, to)?;
        ctx.mul(square, ctx.cpy(p, to)?)
    });
    unsupported("cpy", "another operation uses", |ctx, [p, q]| {
        let to = ctx.step(q)?;
        let copy = ctx.cpy(p, ctx.reshape(to, [12])?)?;
        ctx.mul(ctx.mul(q, to)?, ctx.reshape(copy, SHAPE)?)
    });
}

#[test]
fn training_refuses_types_other_than_f32() {
    unsupported("cpy", "only pass through f32", |ctx, [p, q]| {
        ctx.mul(p, ctx.cast(ctx.cast(q, DType::F16)?, DType::F32)?)
    });
    unsupported("neg", "only pass through f32", |ctx, [p, q]| {
        let brain = ctx.step(ctx.neg(ctx.cast(p, DType::BF16)?)?)?;
        ctx.mul(ctx.cast(brain, DType::F32)?, ctx.mul(p, q)?)
    });
}

/// For these operations C asserts, while it builds the backward pass, that the gradient is contiguous, or takes views
/// that assume it.
#[test]
fn h12_training_refuses_gradients_that_are_not_contiguous() {
    type Build = for<'c> fn(&'c Context, Tensor<'c>) -> ggml::Result<Tensor<'c>>;
    let turned: [(&str, Build); 7] = [
        ("scale", |ctx, y| ctx.scale(y, 2.0)),
        ("neg", Context::neg),
        ("cont", Context::cont),
        ("sub", |ctx, y| ctx.sub(ctx.step(y)?, y)),
        ("cpy", |ctx, y| ctx.cast(y, DType::F32)),
        ("set", |ctx, y| ctx.set(y, ctx.sum(ctx.step(y)?)?, SetOptions::new(4))),
        ("acc", |ctx, y| ctx.acc(ctx.step(y)?, ctx.sum(y)?, SetOptions::new(4))),
    ];
    for (op, build) in turned {
        let after = |between: Build| {
            refusal_or_not(|ctx, [p, q]| {
                let y = between(ctx, build(ctx, ctx.mul(p, q)?)?)?;
                ctx.cont(ctx.transpose(y)?)
            })
        };
        let error = after(|_, y| Ok(y)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }) && text.starts_with(op), "{op}: {text}");
        assert!(text.contains("a `reshape` to the same shape"), "{op}: {text}");
        // It does.
        after(|ctx, y| ctx.reshape(y, y.shape())).unwrap_or_else(|e| panic!("{op}: {e}"));
    }
    // Here the existing gradient is not contiguous.
    let joined: [(&str, Build); 3] = [
        ("sum", |ctx, y| ctx.repeat(ctx.sum(y)?, ctx.input("like", DType::F32, [3, 4])?)),
        ("cont", |ctx, y| ctx.reshape(ctx.cont(y)?, [3, 4])),
        ("view", |ctx, y| ctx.reshape(ctx.view(y, SHAPE, [16, 48, 48], 0)?, [3, 4])),
    ];
    for (op, build) in joined {
        let result = refusal_or_not(|ctx, [p, q]| {
            let y = ctx.mul(p, q)?;
            ctx.add(build(ctx, y)?, ctx.cont(ctx.transpose(y)?)?)
        });
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }) && text.starts_with(op), "{op}: {text}");
    }
}

/// Whether the sum of `build`'s result can be derived, for two parameters of [`SHAPE`].
fn refusal_or_not(
    build: impl for<'c> Fn(&'c Context, [Tensor<'c>; 2]) -> ggml::Result<Tensor<'c>>,
) -> ggml::Result<()> {
    let parameters = state(&[SHAPE, SHAPE]);
    let ctx = Context::new();
    let both = ["p0", "p1"].map(|name| parameters.tensor(name).unwrap());
    let y = build(&ctx, both).unwrap();
    sum(&both, Sgd::new())?.graphs(&ctx, None, y).map(drop)
}

/// C would read the gradient of the convolution kernel before it exists.
#[test]
fn training_refuses_im2col_kernels_without_an_earlier_gradient() {
    unsupported("im2col", "from a later operation", |ctx, [p, q]| ctx.im2col(q, p, Conv2dOptions::new(), DType::F32));
    unsupported("im2col", "from a later operation", |ctx, [p, q]| {
        let columns = ctx.im2col(q, p, Conv2dOptions::new(), DType::F32)?;
        ctx.add(ctx.sum(ctx.sqr(q)?)?, ctx.sum(columns)?)
    });
}

#[test]
fn training_refuses_operations_that_write_to_a_parameter() {
    unsupported("cpy", "it writes to a parameter", |ctx, [p, q]| ctx.mul(ctx.cpy(p, q)?, p));
}

#[test]
fn training_refuses_parameters_that_do_not_affect_the_loss() {
    for error in [refusal(|ctx, [p, _]| ctx.sqr(p)), refusal(|ctx, [p, q]| ctx.mul(p, ctx.step(q)?))] {
        let text = error.to_string();
        assert!(matches!(error, Error::NotPart { .. }) && text.contains("`p1`"), "{text}");
    }
}

/// A gradient comes back through `transpose` without being copied; these kernels abort or read out of bounds if it is
/// not contiguous.
#[test]
fn training_refuses_gradients_that_a_kernel_cannot_read() {
    type Build = for<'c> fn(&'c Context, Tensor<'c>) -> ggml::Result<Tensor<'c>>;
    let table: [(&str, [i64; 4], Build); 5] = [
        ("silu_back", SHAPE, Context::silu),
        ("rms_norm_back", SHAPE, |ctx, p| ctx.rms_norm(p, 1e-5)),
        ("soft_max_back", SHAPE, Context::soft_max),
        ("repeat_back", [4, 1, 1, 1], |ctx, p| ctx.repeat(p, ctx.input("like", DType::F32, SHAPE)?)),
        ("pool_2d_back", [8, 6, 1, 1], |ctx, p| ctx.pool_2d(p, PoolOp::Max, Pool2dOptions::new([2; 2]))),
    ];
    for (kernel, shape, build) in table {
        let parameters = state(&[shape]);
        let p = parameters.tensor("p0").unwrap();
        let start = |between: Build| {
            let ctx = Context::new();
            let y = between(&ctx, build(&ctx, p)?)?;
            let y = ctx.cont(ctx.transpose(y)?)?;
            let weights = ctx.input("weights", DType::F32, y.shape())?;
            let mut opt = sum(&[p], Sgd::new())?;
            let graphs = opt.graphs(&ctx, weights, ctx.mul(y, weights)?)?;
            opt.alloc(&mut cpu(), &graphs, true).map(drop)
        };
        let error = start(|_, y| Ok(y)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }) && text.starts_with(kernel), "{kernel}: {text}");
        // The documented workaround.
        start(|ctx, y| ctx.reshape(y, y.shape())).unwrap_or_else(|e| panic!("{kernel}: {e}"));
    }
}

#[test]
fn opt_context_refuses_unsuitable_parameters() {
    let parameters = state(&[SHAPE]);
    let mut builder = WeightsBuilder::new();
    builder.tensor("frozen", DType::F32, SHAPE).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("short", DType::F16, SHAPE).unwrap();
    let short = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, SHAPE).unwrap();
    let p = parameters.tensor("p0").unwrap();
    let new = |parameters: &[Tensor<'_>]| sum(parameters, Sgd::new()).unwrap_err();
    assert!(matches!(new(&[]), Error::Param { name: "parameters", .. }));
    assert!(matches!(new(&[p, p]), Error::Duplicate { .. }));
    assert!(matches!(new(&[x]), Error::NotPart { .. }));
    assert!(matches!(new(&[weights.tensor("frozen").unwrap()]), Error::Frozen { .. }));
    assert!(matches!(new(&[short.tensor("short").unwrap()]), Error::DType { .. }));
    let part = ctx.view(p, [4], [16, 48, 48], 0).unwrap();
    assert!(matches!(new(&[part]), Error::Shape { .. }), "a view is no parameter");
    let params = OptParams::new(LossType::Sum).with_opt_period(0);
    assert!(matches!(OptContext::new([p], params), Err(Error::Param { name: "opt_period", .. })));
}

#[test]
fn opt_graphs_refuse_unsuitable_inputs_and_outputs() {
    let parameters = state(&[SHAPE, [4, 3, 2, 1]]);
    let ctx = Context::new();
    let [p, solid] = ["p0", "p1"].map(|name| parameters.tensor(name).unwrap());
    let x = ctx.input("x", DType::F32, SHAPE).unwrap();
    let y = ctx.mul(p, x).unwrap();
    let new = |what, parameter, inputs, outputs| {
        let opt = OptContext::new([parameter], OptParams::new(what)).unwrap();
        opt.graphs(&ctx, inputs, outputs).map(drop)
    };
    for what in [LossType::Mean, LossType::Sum, LossType::CrossEntropy, LossType::MeanSquaredError] {
        new(what, p, Some(x), y).unwrap();
        let half = ctx.cast(y, DType::F16).unwrap();
        assert!(matches!(new(what, p, None, half), Err(Error::DType { .. })), "{what:?}");
        let places = ctx.argmax(y).unwrap();
        assert!(matches!(new(what, p, None, places), Err(Error::DType { .. })), "{what:?}");
    }
    let doubled = ctx.scale(solid, 2.0).unwrap();
    assert!(matches!(new(LossType::CrossEntropy, solid, None, doubled), Err(Error::Shape { call: "argmax", .. })));
    let other = ctx.input("other", DType::F32, SHAPE).unwrap();
    for inputs in [other, p, y] {
        assert!(matches!(new(LossType::Sum, p, Some(inputs), y), Err(Error::NotPart { .. })), "{inputs:?}");
    }
}

#[test]
fn opt_run_refuses_graphs_that_were_not_built() {
    let parameters = state(&[SHAPE]);
    let p = parameters.tensor("p0").unwrap();
    let ctx = Context::new();
    let y = ctx.sqr(p).unwrap();
    let mut sched = cpu();
    let mut first = sum(&[p], Sgd::new()).unwrap();
    let second = sum(&[p], Sgd::new()).unwrap();
    let graphs = second.graphs(&ctx, None, y).unwrap();
    assert!(matches!(first.alloc(&mut sched, &graphs, true), Err(Error::Param { name: "graphs", .. })));

    let params = OptParams::new(LossType::Sum);
    let mut forward = OptContext::new([p], params.with_build_type(BuildType::Forward)).unwrap();
    let graphs = forward.graphs(&ctx, None, y).unwrap();
    assert!(matches!(forward.alloc(&mut sched, &graphs, true), Err(Error::Param { name: "backward", .. })));
    forward.alloc(&mut sched, &graphs, false).unwrap().eval(None).unwrap();

    // The second batch needs the graph with the step.
    let mut opt = OptContext::new([p], params.with_opt_period(2)).unwrap();
    let graphs = opt.graphs(&ctx, None, y).unwrap();
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
    assert_eq!(run.build_type(), BuildType::Grad);
    run.eval(None).unwrap();
    assert!(matches!(run.eval(None), Err(Error::Param { name: "batch", .. })));
    drop(run);
    assert_eq!(opt.alloc(&mut sched, &graphs, true).unwrap().build_type(), BuildType::Opt);
}

#[test]
fn set_optimizer_refuses_settings_out_of_range() {
    let good = AdamW::new();
    let bad: Vec<(&str, Optimizer)> = vec![
        ("alpha", good.with_alpha(0.0).into()),
        ("alpha", good.with_alpha(f32::NAN).into()),
        ("alpha", good.with_alpha(f32::INFINITY).into()),
        ("beta1", good.with_beta1(1.0).into()),
        ("beta1", good.with_beta1(-0.1).into()),
        ("beta2", good.with_beta2(1.0).into()),
        ("beta2", good.with_beta2(f32::NAN).into()),
        ("eps", good.with_eps(-1e-8).into()),
        ("eps", good.with_eps(f32::NAN).into()),
        ("wd", good.with_wd(1.5).into()),
        ("alpha", Sgd::new().with_alpha(-1.0).into()),
        ("wd", Sgd::new().with_alpha(1.0).with_wd(-0.5).into()),
    ];
    let parameters = state(&[SHAPE]);
    let ctx = Context::new();
    let p = parameters.tensor("p0").unwrap();
    let mut adam = sum(&[p], good).unwrap();
    let mut sgd = sum(&[p], Sgd::new()).unwrap();
    let graphs = adam.graphs(&ctx, None, ctx.sqr(p).unwrap()).unwrap();
    let of = |result: Result<(), Error>| match result {
        Err(Error::Param { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    for (parameter, optimizer) in bad {
        assert_eq!(of(sum(&[p], optimizer).map(drop)), parameter, "{optimizer:?}");
        let opt = if matches!(optimizer, Optimizer::Sgd(_)) { &mut sgd } else { &mut adam };
        assert_eq!(of(opt.set_optimizer(optimizer)), parameter, "{optimizer:?}");
    }
    assert_eq!(of(adam.set_optimizer(Sgd::new())), "optimizer");
    assert_eq!(adam.optimizer(), Optimizer::AdamW(good));
    assert_eq!((adam.optimizer().name(), sgd.optimizer().name()), ("adamw", "sgd"));
    // The schedule's result is checked too, before any parameter is changed.
    let mut adam = adam.with_schedule(|_| Sgd::new().into());
    let before: Vec<f32> = p.read().unwrap();
    let mut sched = cpu();
    let mut run = adam.alloc(&mut sched, &graphs, true).unwrap();
    assert_eq!(of(run.eval(None).map(drop)), "optimizer");
    assert_eq!(p.read::<f32>().unwrap(), before);
}

#[test]
fn the_default_optimizer_is_that_of_ggml() {
    let default = Optimizer::default();
    assert_eq!(default.name(), "adamw");
    assert_eq!(format!("{default:?}"), format!("{:?}", Optimizer::from(AdamW::new())));
}
