//! The gradient of every operation that training supports, by each of its operands, against finite differences.

use ggml::opt::{Sgd, Training};
use ggml::prelude::*;
use ggml::{Conv2d, Pool, Pool2d};

use super::{cpu, state, waves};

/// Half the distance over which a difference is taken.
const STEP: f32 = 2e-3;
const TOLERANCE: f32 = 2e-3;

/// Compares the gradients of a weighted sum of what `build` makes of parameters of these shapes, which lie around
/// `middle`.
fn check(
    what: &str,
    middle: f32,
    shapes: &[[i64; 4]],
    build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> ggml::Result<Tensor<'c>>,
) {
    let parameters = state(shapes);
    let names: Vec<_> = parameters.iter().map(Tensor::name).collect();
    let old: Vec<_> = parameters.iter().enumerate().map(|(i, t)| waves(t.elements(), i as f32, middle)).collect();
    let put = |i: usize, data: &[f32]| parameters.set(&names[i], data).unwrap();
    (0..old.len()).for_each(|i| put(i, &old[i]));

    let ctx = Context::new();
    let all: Vec<_> = parameters.iter().collect();
    let y = build(&ctx, &all).unwrap_or_else(|e| panic!("{what}: {e}"));
    // Weights that differ, so that no gradient is right by symmetry.
    let weights = ctx.input("weights", DType::F32, y.shape()).unwrap();
    let data = waves(y.elements(), 0.3, 0.2);
    let loss = ctx.sum(ctx.mul(y, weights).unwrap()).unwrap();

    // A step of 1 against the gradient, without decay, is the gradient.
    let mut training =
        Training::new(&ctx, loss, [], &all, Sgd { alpha: 1.0, wd: 0.0 }).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut sched = cpu();
    let mut run = training.start(&mut sched).unwrap_or_else(|e| panic!("{what}: {e}"));
    run.set(weights, &data).unwrap();
    let first = run.step().unwrap();
    drop(run);
    let new: Vec<Vec<f32>> = all.iter().map(|t| t.read().unwrap()).collect();
    (0..old.len()).for_each(|i| put(i, &old[i]));

    let graph = ctx.graph([loss]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(weights, &data).unwrap();
    let mut loss_now = || {
        run.compute().unwrap();
        run.get::<f32>(loss).unwrap()[0]
    };
    assert!((loss_now() - first).abs() < 1e-5, "{what}: the step returned another loss");
    let mut largest = 0.0_f32;
    for i in 0..old.len() {
        for j in 0..old[i].len() {
            let mut at = |by: f32| {
                let mut data = old[i].clone();
                data[j] += by;
                put(i, &data);
                loss_now()
            };
            let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let got = old[i][j] - new[i][j];
            assert!(
                (got - expected).abs() < TOLERANCE * (1.0 + expected.abs()),
                "{what}, p{i}[{j}]: {got}, {expected}"
            );
            largest = largest.max(expected.abs());
        }
        put(i, &old[i]);
    }
    assert!(largest > 0.01, "{what}: no gradient to compare");
}

const A: [i64; 4] = [4, 3, 2, 1];

#[test]
fn functions_of_elements() {
    type Unary = for<'c> fn(&'c Context, Tensor<'c>) -> ggml::Result<Tensor<'c>>;
    let table: [(&str, f32, Unary); 14] = [
        ("abs", 0.1, Context::abs),
        ("cos", 0.5, Context::cos),
        ("exp", 0.0, Context::exp),
        ("expm1", 0.0, Context::expm1),
        ("log", 0.8, Context::log),
        ("neg", 0.0, Context::neg),
        ("relu", 0.1, Context::relu),
        ("silu", 0.1, Context::silu),
        ("sin", 0.5, Context::sin),
        ("softplus", 0.1, Context::softplus),
        ("sqr", 0.3, Context::sqr),
        ("sqrt", 0.8, Context::sqrt),
        ("dup", 0.1, Context::dup),
        ("soft_max", 0.1, Context::soft_max),
    ];
    for (name, middle, f) in table {
        check(name, middle, &[A], |ctx, p| f(ctx, p[0]));
    }
    check("scale", 0.1, &[A], |ctx, p| ctx.scale(p[0], -1.5));
    check("scale_bias", 0.1, &[A], |ctx, p| ctx.scale_bias(p[0], -1.5, 2.0));
    check("rms_norm", 0.5, &[A], |ctx, p| ctx.rms_norm(p[0], 1e-5));
}

#[test]
fn functions_of_pairs() {
    check("add", 0.5, &[A, A], |ctx, p| ctx.add(p[0], p[1]));
    check("add, repeated", 0.5, &[A, [4, 1, 2, 1]], |ctx, p| ctx.add(p[0], p[1]));
    check("sub", 0.5, &[A, A], |ctx, p| ctx.sub(p[0], p[1]));
    check("mul", 0.5, &[A, A], |ctx, p| ctx.mul(p[0], p[1]));
    check("mul, repeated", 0.5, &[A, [1, 3, 1, 1]], |ctx, p| ctx.mul(p[0], p[1]));
    check("div", 0.8, &[A, A], |ctx, p| ctx.div(p[0], p[1]));
    check("twice", 0.8, &[A], |ctx, p| ctx.div(ctx.sqr(p[0])?, ctx.sqrt(p[0])?));
}

#[test]
fn sums_and_repetitions() {
    check("sum", 0.5, &[A], |ctx, p| ctx.sum(ctx.sqr(p[0])?));
    check("sum_rows", 0.5, &[A], |ctx, p| ctx.sum_rows(ctx.sqr(p[0])?));
    check("mean", 0.5, &[[7, 1, 1, 1]], |ctx, p| ctx.mean(ctx.sqr(p[0])?));
    check("repeat", 0.5, &[[2, 1, 2, 1], A], |ctx, p| ctx.add(ctx.repeat(p[0], p[1])?, p[1]));
}

#[test]
fn other_looks_at_the_same_elements() {
    check("reshape", 0.5, &[A], |ctx, p| ctx.sqr(ctx.reshape(p[0], [6, 4])?));
    check("transpose", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cont(ctx.transpose(p[0])?)?));
    check("permute", 0.5, &[A], |ctx, p| ctx.sqr(ctx.cont(ctx.permute(p[0], [2, 0, 1, 3])?)?));
    // The parameter's own gradient is not contiguous here, so it has to be copied before the step.
    check("permute only", 0.5, &[A], |ctx, p| ctx.cont(ctx.permute(p[0], [2, 0, 1, 3])?));
}

#[test]
fn products_of_matrices() {
    check("mul_mat", 0.1, &[[5, 4, 1, 1], [5, 3, 1, 1]], |ctx, p| ctx.mul_mat(p[0], p[1]));
    check("mul_mat, 3d", 0.1, &[[5, 4, 2, 1], [5, 3, 2, 1]], |ctx, p| ctx.mul_mat(p[0], p[1]));
    // The first layer's gradient is computed from the second layer's weights, which must not have moved yet.
    check("two layers", 0.1, &[[3, 4, 1, 1], [4, 2, 1, 1], [3, 5, 1, 1]], |ctx, p| {
        ctx.mul_mat(p[1], ctx.relu(ctx.mul_mat(p[0], p[2])?)?)
    });
}

#[test]
fn images() {
    let image = [5, 4, 2, 3];
    check("conv_2d", 0.1, &[[3, 3, 2, 2], image], |ctx, p| ctx.conv_2d(p[0], p[1], Conv2d::padded(1)));
    let mut strided = Conv2d::default();
    strided.stride = [2, 1];
    strided.dilation = [1, 2];
    check("conv_2d, strided", 0.1, &[[3, 2, 2, 2], image], |ctx, p| ctx.conv_2d(p[0], p[1], strided));
    check("conv_2d, one image", 0.1, &[[3, 3, 2, 1], [5, 4, 2, 1]], |ctx, p| {
        ctx.conv_2d(p[0], p[1], Conv2d::padded(1))
    });
    for pool in [Pool::Max, Pool::Avg] {
        check(&format!("{pool:?}"), 0.1, &[[6, 4, 2, 2]], |ctx, p| ctx.pool_2d(p[0], pool, Pool2d::square(2)));
    }
}

#[test]
fn cross_entropy() {
    check("cross_entropy_loss", 0.1, &[[4, 3, 1, 1]], |ctx, p| {
        // `step` is constant as far as gradients go, so these labels are, too.
        ctx.cross_entropy_loss(p[0], ctx.soft_max(ctx.step(p[0])?)?)
    });
}
