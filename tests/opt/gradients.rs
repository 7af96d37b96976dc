//! The gradient of every differentiable operation, for each operand, compared with finite differences.

use ggml::ops::{Conv2dOptions, GluOp, Pool2dOptions, PoolOp, RopeMode, RopeOptions, SetOptions, SoftMaxOptions};
use ggml::opt::{BuildType, LossType, OptContext, OptParams, OptRun};
use ggml::prelude::*;
use testkit::cases::rows;

use super::{cpu, state, waves};

/// Half the distance of the finite differences.
const STEP: f32 = 4e-3;
const TOLERANCE: f64 = 1e-3;

/// The value of an input.
enum Feed {
    Int(Vec<i32>),
    Float(Vec<f32>),
}

/// A computation and the values of its inputs.
type Built<'c> = ggml::Result<(Tensor<'c>, Vec<(Tensor<'c>, Feed)>)>;

/// Compares the gradients of a weighted sum of `build`'s result with finite differences. The parameters have these
/// shapes and values around `middle`.
fn check(
    what: &str,
    middle: f32,
    shapes: &[[i64; 4]],
    build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> ggml::Result<Tensor<'c>>,
) {
    check_fed(what, middle, shapes, |ctx, p| Ok((build(ctx, p)?, vec![])));
}

fn check_fed(
    what: &str,
    middle: f32,
    shapes: &[[i64; 4]],
    build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Built<'c>,
) {
    let parameters = state(shapes);
    let names: Vec<_> = parameters.iter().map(Tensor::name).collect();
    let old: Vec<_> = parameters.iter().enumerate().map(|(i, t)| waves(t.elements(), i as f32, middle)).collect();
    let put = |i: usize, data: &[f32]| parameters.set(&names[i], data).unwrap();
    (0..old.len()).for_each(|i| put(i, &old[i]));

    let ctx = Context::new();
    let all: Vec<_> = parameters.iter().collect();
    let (y, feeds) = build(&ctx, &all).unwrap_or_else(|e| panic!("{what}: {e}"));
    // Different weights, so that no gradient is right by symmetry.
    let weights = ctx.input("weights", DType::F32, y.shape()).unwrap();
    let data = waves(y.elements(), 0.3, 0.2);
    let outputs = ctx.mul(y, weights).unwrap();
    let params = OptParams::new(LossType::Sum).with_build_type(BuildType::Grad);
    let mut opt = OptContext::new(&all, params).unwrap();
    let graphs = opt.graphs(&ctx, None, outputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    let feed = |run: &mut OptRun<'_, '_, '_>| {
        run.set(weights, &data).unwrap();
        for (t, feed) in &feeds {
            match feed {
                Feed::Int(values) => run.set(*t, values).unwrap(),
                Feed::Float(values) => run.set(*t, values).unwrap(),
            }
        }
    };
    let mut sched = cpu();
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap_or_else(|e| panic!("{what}: {e}"));
    feed(&mut run);
    run.eval(None).unwrap();
    drop(run);
    let gradients: Vec<Vec<f32>> = all.iter().map(|&t| opt.grad_acc(t).unwrap().read().unwrap()).collect();

    let mut run = opt.alloc(&mut sched, &graphs, false).unwrap();
    feed(&mut run);
    let mut largest = 0.0_f64;
    for i in 0..old.len() {
        for j in 0..old[i].len() {
            let mut at = |by: f32| {
                let mut data = old[i].clone();
                data[j] += by;
                put(i, &data);
                run.eval(None).unwrap();
                (f64::from(data[j]), run.get::<f32>(outputs).unwrap())
            };
            let ((x1, y1), (x0, y0)) = (at(STEP), at(-STEP));
            let change: f64 = y1.iter().zip(&y0).map(|(&a, &b)| f64::from(a) - f64::from(b)).sum();
            let (expected, got) = (change / (x1 - x0), f64::from(gradients[i][j]));
            let near = (got - expected).abs() < TOLERANCE * (1.0 + expected.abs());
            assert!(near, "{what}, p{i}[{j}]: {got}, {expected}");
            largest = largest.max(expected.abs());
        }
        put(i, &old[i]);
    }
    assert!(largest > 0.01, "{what}: no gradient to compare");
}

const A: [i64; 4] = [4, 3, 2, 1];

#[test]
fn gradients_of_elementwise_functions() {
    for row in rows() {
        let Some((slope, case)) = row.each.and_then(|each| each.slope).zip(row.cases.first()) else { continue };
        check(row.name, slope, &vec![A; case.operands.len()], |ctx, p| (case.build)(ctx, p));
    }
    // These are piecewise constant, and pass no gradient on.
    check("step", 0.1, &[A], |ctx, p| ctx.mul(p[0], ctx.step(p[0])?));
    check("sgn", 0.1, &[A], |ctx, p| ctx.mul(p[0], ctx.sgn(ctx.neg(p[0])?)?));
    check("twice", 0.8, &[A], |ctx, p| ctx.div(ctx.sqr(p[0])?, ctx.sqrt(p[0])?));
}

#[test]
fn gradients_of_binary_operations() {
    check("add", 0.5, &[A, A], |ctx, p| ctx.add(p[0], p[1]));
    check("add, repeated", 0.5, &[A, [4, 1, 2, 1]], |ctx, p| ctx.add(p[0], p[1]));
    check("add, itself", 0.5, &[A], |ctx, p| ctx.add(p[0], p[0]));
    check("add1", 0.5, &[A], |ctx, p| ctx.add1(ctx.sqr(p[0])?, ctx.sum(ctx.step(p[0])?)?));
    check("sub", 0.5, &[A, A], |ctx, p| ctx.sub(p[0], p[1]));
    check("sub, repeated", 0.5, &[A], |ctx, p| ctx.sub(p[0], ctx.sum_rows(ctx.step(p[0])?)?));
    check("sub, from what has a gradient", 0.5, &[A], |ctx, p| ctx.sub(ctx.sqr(p[0])?, p[0]));
    check("mul", 0.5, &[A, A], |ctx, p| ctx.mul(p[0], p[1]));
    check("mul, repeated", 0.5, &[A, [1, 3, 1, 1]], |ctx, p| ctx.mul(p[0], p[1]));
    check("mul, itself", 0.5, &[A], |ctx, p| ctx.mul(p[0], p[0]));
    check("div", 0.8, &[A, A], |ctx, p| ctx.div(p[0], p[1]));
    check("swiglu_split", 0.2, &[A, A], |ctx, p| ctx.glu_split(p[0], p[1], GluOp::Swiglu));
}

#[test]
fn gradients_of_sums_and_repeat() {
    check("sum", 0.5, &[A], |ctx, p| ctx.sum(ctx.sqr(p[0])?));
    check("sum, of what has a gradient", 0.5, &[A], |ctx, p| ctx.mul(p[0], ctx.repeat(ctx.sum(p[0])?, p[0])?));
    check("sum_rows", 0.5, &[A], |ctx, p| ctx.sum_rows(ctx.sqr(p[0])?));
    check("mean", 0.5, &[[7, 1, 1, 1]], |ctx, p| ctx.mean(ctx.sqr(p[0])?));
    check("repeat", 0.5, &[[2, 1, 2, 1], A], |ctx, p| ctx.add(ctx.repeat(p[0], p[1])?, p[1]));
    check("repeat_back", 0.5, &[A, [2, 1, 2, 1]], |ctx, p| ctx.mul(ctx.repeat_back(p[0], p[1])?, p[1]));
}

#[test]
fn gradients_of_views() {
    check("reshape", 0.5, &[A], |ctx, p| ctx.sqr(ctx.reshape(p[0], [6, 4])?));
    check("transpose", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cont(ctx.transpose(p[0])?)?));
    check("permute", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cont(ctx.permute(p[0], [2, 0, 1, 3])?)?));
    // The parameter's own gradient is not contiguous here, so it must be copied before the step.
    check("permute only", 0.5, &[A], |ctx, p| ctx.cont(ctx.permute(p[0], [2, 0, 1, 3])?));
    check("transposed twice", 0.5, &[A], |ctx, p| {
        // The first copy's gradient comes back through the second `transpose`; the `reshape` copies it.
        let once = ctx.cont(ctx.transpose(p[0])?)?;
        let once = ctx.reshape(once, once.shape())?;
        ctx.mul(ctx.cont(ctx.transpose(once)?)?, p[0])
    });
}

#[test]
fn gradients_of_copies() {
    check("cont", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cont(ctx.sqr(p[0])?)?));
    check("cont_4d", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cont_4d(ctx.sqr(p[0])?, [6, 4])?));
    check("cast", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cast(p[0], DType::F32)?));
    check("cpy", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cpy(p[0], ctx.step(p[0])?)?));
    // Overwriting a value before its use is harmless.
    check("mul, by what was written in place", 0.5, &[A], |ctx, p| {
        let fixed = ctx.scale_inplace(ctx.dup(ctx.step(p[0])?)?, 2.0)?;
        ctx.mul(ctx.sqr(p[0])?, fixed)
    });
    check("cpy, another shape", 0.5, &[A], |ctx, p| {
        let to = ctx.reshape(ctx.step(p[0])?, [6, 4])?;
        ctx.sqr(ctx.reshape(ctx.cpy(p[0], to)?, [12, 2])?)
    });
}

#[test]
fn gradients_of_acc_and_set() {
    let part = [2, 2, 1, 1];
    check("acc", 0.5, &[A, part], |ctx, p| ctx.sqr(ctx.acc(p[0], p[1], SetOptions::new(20))?));
    check("set", 0.5, &[A, part], |ctx, p| ctx.sqr(ctx.set(p[0], p[1], SetOptions::new(20))?));
    check("set, all planes", 0.5, &[A, [1, 3, 2, 1]], |ctx, p| ctx.sqr(ctx.set(p[0], p[1], SetOptions::new(8))?));
    check("view", 0.5, &[A], |ctx, p| ctx.sqr(ctx.view(p[0], [2, 3], [16, 48, 48], 8)?));
    check("view, every second row", 0.5, &[A], |ctx, p| ctx.sqr(ctx.view(ctx.sqr(p[0])?, [4, 3], [32, 96, 96], 0)?));
    check("views that overlap", 0.5, &[A], |ctx, p| {
        let (a, b) = (ctx.view(p[0], [3, 2], [16, 48, 48], 0)?, ctx.view(p[0], [3, 2], [16, 48, 48], 20)?);
        ctx.mul(a, b)
    });
    check("view of a view", 0.5, &[A], |ctx, p| {
        let plane = ctx.view(p[0], [4, 3], [16, 48, 48], 48)?;
        ctx.sqr(ctx.view(plane, [2, 2], [16, 32, 32], 20)?)
    });
}

#[test]
fn gradients_of_mul_mat() {
    check("mul_mat", 0.1, &[[5, 4, 1, 1], [5, 3, 1, 1]], |ctx, p| ctx.mul_mat(p[0], p[1]));
    check("mul_mat, 3d", 0.1, &[[5, 4, 2, 1], [5, 3, 2, 1]], |ctx, p| ctx.mul_mat(p[0], p[1]));
    check("mul_mat, 4d", 0.1, &[[5, 4, 2, 2], [5, 3, 2, 2]], |ctx, p| ctx.mul_mat(p[0], p[1]));
    check("mul_mat, a matrix for all", 0.1, &[[5, 4, 1, 1], [5, 3, 3, 1]], |ctx, p| ctx.mul_mat(p[0], p[1]));
    check("mul_mat, groups", 0.1, &[[5, 4, 2, 1], [5, 3, 6, 1]], |ctx, p| ctx.mul_mat(p[0], p[1]));
    check("mul_mat, 4d for all", 0.1, &[[5, 3, 2, 4]], |ctx, p| {
        let fixed = ctx.step(ctx.view(p[0], [5, 2, 1, 2], [20, 60, 120], 0)?)?;
        ctx.mul_mat(fixed, p[0])
    });
    // The first layer's gradient depends on the second layer's weights, which must not be updated yet.
    check("two layers", 0.1, &[[3, 4, 1, 1], [4, 2, 1, 1], [3, 5, 1, 1]], |ctx, p| {
        ctx.mul_mat(p[1], ctx.relu(ctx.mul_mat(p[0], p[2])?)?)
    });
}

#[test]
fn gradients_of_row_operations() {
    check("rms_norm", 0.5, &[A], |ctx, p| ctx.rms_norm(p[0], 1e-5));
    check("soft_max", 0.1, &[A], |ctx, p| ctx.soft_max(p[0]));
    check("soft_max_ext", 0.1, &[A], |ctx, p| {
        let how = SoftMaxOptions::new().with_mask(ctx.step(p[0])?).with_scale(0.7);
        ctx.soft_max_ext(p[0], how)
    });
    check("diag_mask_inf", 0.5, &[A], |ctx, p| ctx.soft_max(ctx.diag_mask_inf(ctx.sqr(p[0])?, 1)?));
    check("diag_mask_zero", 0.5, &[A], |ctx, p| ctx.sqr(ctx.diag_mask_zero(p[0], 1)?));
    check("cross_entropy_loss", 0.1, &[[4, 3, 1, 1]], |ctx, p| {
        // `step` has no gradient, so these labels are constant.
        ctx.cross_entropy_loss(p[0], ctx.soft_max(ctx.step(p[0])?)?)
    });
    // Rows that are selected twice receive both gradients, unselected rows none.
    check_fed("get_rows", 0.5, &[[4, 5, 1, 1]], |ctx, p| {
        let rows = ctx.input("rows", DType::I32, [4])?;
        Ok((ctx.sqr(ctx.get_rows(p[0], rows)?)?, vec![(rows, Feed::Int(vec![3, 1, 3, 0]))]))
    });
    check("get_rows, sorted", 0.5, &[[1, 4, 1, 1]], |ctx, p| {
        let order = ctx.argsort(ctx.reshape(p[0], [4])?, ops::SortOrder::Desc)?;
        ctx.sqr(ctx.get_rows(p[0], order)?)
    });
}

#[test]
fn gradients_of_rope() {
    let modes = [RopeMode::Normal, RopeMode::NeoX, RopeMode::MRope, RopeMode::IMRope, RopeMode::Vision];
    for mode in modes {
        for (n_dims, factors) in [(8, false), (4, false), (8, true)] {
            let multi = matches!(mode, RopeMode::MRope | RopeMode::IMRope | RopeMode::Vision);
            let n_dims = if mode == RopeMode::Vision { 4 } else { n_dims };
            check_fed(&format!("rope, {mode:?}, {n_dims}, {factors}"), 0.1, &[[8, 2, 3, 1]], |ctx, p| {
                let n = if multi { 12 } else { 3 };
                let positions = ctx.input("positions", DType::I32, [n])?;
                let mut feeds = vec![(positions, Feed::Int((0..n).map(|i| i * 5 % 7).collect()))];
                let mut how = RopeOptions::new(n_dims, mode)
                    .with_sections(match mode {
                        RopeMode::Vision => [1, 3, 1, 0],
                        _ if multi => [1; 4],
                        _ => [0; 4],
                    })
                    .with_attn_factor(1.3);
                if factors {
                    let factors = ctx.input("factors", DType::F32, [4])?;
                    feeds.push((factors, Feed::Float(vec![1.0, 0.5, 2.0, 1.5])));
                    how = how.with_freq_factors(factors);
                }
                Ok((ctx.rope_ext(p[0], positions, how)?, feeds))
            });
        }
    }
}

#[test]
fn gradients_of_conv_2d_and_pool_2d() {
    let image = [5, 4, 2, 3];
    check("conv_2d", 0.1, &[[3, 3, 2, 2], image], |ctx, p| {
        ctx.conv_2d(p[0], p[1], Conv2dOptions::new().with_padding([1; 2]))
    });
    let strided = Conv2dOptions::new().with_stride([2, 1]).with_dilation([1, 2]);
    check("conv_2d, strided", 0.1, &[[3, 2, 2, 2], image], |ctx, p| ctx.conv_2d(p[0], p[1], strided));
    check("conv_2d, one image", 0.1, &[[3, 3, 2, 1], [5, 4, 2, 1]], |ctx, p| {
        ctx.conv_2d(p[0], p[1], Conv2dOptions::new().with_padding([1; 2]))
    });
    for pool in [PoolOp::Max, PoolOp::Avg] {
        check(&format!("{pool:?}"), 0.1, &[[6, 4, 2, 2]], |ctx, p| ctx.pool_2d(p[0], pool, Pool2dOptions::new([2; 2])));
    }
}

/// Frozen weights may have any type; the gradient by the other operand is supported.
#[test]
fn gradients_of_mul_mat_with_frozen_weights_of_other_types() {
    let mut sched = cpu();
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 1e-3), (DType::Q8_0, 1e-2)] {
        let (k, m, n) = (32, 3, 2);
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", dtype, [k, m]).unwrap();
        let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
        let w = waves(96, 0.0, 0.1);
        weights.set_bytes("w", &dtype.quantize(&w, k as usize, None).unwrap()).unwrap();
        let parameters = state(&[[k, n, 1, 1]]);
        parameters.set("p0", &waves(64, 1.0, 0.1)).unwrap();
        let ctx = Context::new();
        let p = parameters.tensor("p0").unwrap();
        let y = ctx.mul_mat(weights.tensor("w").unwrap(), p).unwrap();
        let params = OptParams::new(LossType::Sum).with_build_type(BuildType::Grad);
        let mut opt = OptContext::new([p], params).unwrap();
        let graphs = opt.graphs(&ctx, None, y).unwrap();
        opt.alloc(&mut sched, &graphs, true).unwrap().eval(None).unwrap();
        let got: Vec<f32> = opt.grad_acc(p).unwrap().read().unwrap();
        for (i, &got) in got.iter().enumerate() {
            let expected: f32 = w.iter().skip(i % 32).step_by(32).sum();
            assert!((got - expected).abs() < tolerance, "{dtype:?}, {i}: {got}, {expected}");
        }
    }
}
