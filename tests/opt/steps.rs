//! Optimiser steps, compared with their definitions in plain Rust, and reproducible between runs.

use ggml::opt::{AdamW, Sgd};
use ggml::prelude::*;

use super::{cpu, state, sum, waves};

/// `sum((p - target)²)`, whose gradient is `2 (p - target)`.
fn distance<'c>(ctx: &'c Context, p: Tensor<'c>, target: Tensor<'c>) -> Tensor<'c> {
    ctx.sum(ctx.sqr(ctx.sub(p, target).unwrap()).unwrap()).unwrap()
}

const N: usize = 6;
const SHAPE: [i64; 4] = [3, 2, 1, 1];

/// Trains towards targets, with a change of the learning rate in between.
fn run(first: AdamW, second: AdamW) -> (Vec<f32>, Vec<f32>) {
    let parameters = state(&[SHAPE]);
    parameters.set("p0", &waves(N, 0.0, 0.0)).unwrap();
    let ctx = Context::new();
    let target = ctx.input("target", DType::F32, SHAPE).unwrap();
    let p = parameters.tensor("p0").unwrap();
    let loss = distance(&ctx, p, target);
    let mut opt = sum(&[p], first).unwrap();
    let graphs = opt.graphs(&ctx, target, loss).unwrap();
    let mut sched = cpu();
    let mut losses = Vec::new();
    for how in [first, first, second] {
        opt.set_optimizer(how).unwrap();
        let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
        run.set(target, &waves(N, 1.0, 1.0)).unwrap();
        losses.extend((0..5).map(|_| run.eval(None).unwrap()));
    }
    assert_eq!(opt.steps(), 15);
    (p.read().unwrap(), losses)
}

#[test]
fn adamw_equals_its_paper() {
    for eps in [1e-6, 0.0, 0.5] {
        adamw_equals_its_paper_with(eps);
    }
}

fn adamw_equals_its_paper_with(eps: f32) {
    let first = AdamW::new().with_alpha(0.05).with_beta1(0.8).with_beta2(0.95).with_eps(eps).with_wd(0.1);
    let second = first.with_alpha(0.01);
    let (got, losses) = run(first, second);
    for (i, (mut p, target)) in waves(N, 0.0, 0.0).into_iter().map(f64::from).zip(waves(N, 1.0, 1.0)).enumerate() {
        let (mut m, mut v) = (0.0, 0.0);
        for step in 1..=15 {
            let AdamW { alpha, beta1, beta2, eps, wd, .. } = if step <= 10 { first } else { second };
            let [alpha, beta1, beta2, eps, wd] = [alpha, beta1, beta2, eps, wd].map(f64::from);
            let g = 2.0 * (p - f64::from(target));
            m = beta1 * m + (1.0 - beta1) * g;
            v = beta2 * v + (1.0 - beta2) * g * g;
            let (mean, variance) = (m / (1.0 - beta1.powi(step)), v / (1.0 - beta2.powi(step)));
            p -= alpha * (mean / (variance.sqrt() + eps) + wd * p);
        }
        assert!((f64::from(got[i]) - p).abs() < 1e-5, "{i}: {} {p}", got[i]);
    }
    assert!(losses.is_sorted_by(|a, b| a > b), "{losses:?}");
}

/// Without a gradient, a step of `AdamW` divides 0 by `eps`, as is documented.
#[test]
fn adamw_without_a_gradient_needs_eps() {
    for (eps, stays) in [(1e-8, true), (0.0, false)] {
        let parameters = state(&[SHAPE]);
        let p = parameters.tensor("p0").unwrap();
        let ctx = Context::new();
        let target = ctx.input("target", DType::F32, SHAPE).unwrap();
        let loss = distance(&ctx, p, target);
        let mut opt = sum(&[p], AdamW::new().with_eps(eps)).unwrap();
        let graphs = opt.graphs(&ctx, target, loss).unwrap();
        let mut sched = cpu();
        let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
        run.set(target, &[0.0_f32; N]).unwrap();
        run.eval(None).unwrap();
        drop(run);
        let values = p.read::<f32>().unwrap();
        assert!(values.iter().all(|v| if stays { *v == 0.0 } else { v.is_nan() }), "{eps}: {values:?}");
    }
}

#[test]
fn sgd_equals_its_definition() {
    let how = Sgd::new().with_alpha(0.05).with_wd(0.1);
    let parameters = state(&[SHAPE]);
    parameters.set("p0", &waves(N, 0.0, 0.0)).unwrap();
    let ctx = Context::new();
    let target = ctx.input("target", DType::F32, SHAPE).unwrap();
    let p = parameters.tensor("p0").unwrap();
    let mut opt = sum(&[p], how).unwrap();
    let graphs = opt.graphs(&ctx, target, distance(&ctx, p, target)).unwrap();
    let mut sched = cpu();
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
    run.set(target, &waves(N, 1.0, 1.0)).unwrap();
    for _ in 0..7 {
        run.eval(None).unwrap();
    }
    let got: Vec<f32> = p.read().unwrap();
    for (i, (mut p, target)) in waves(N, 0.0, 0.0).into_iter().zip(waves(N, 1.0, 1.0)).enumerate() {
        for _ in 0..7 {
            p -= 0.05 * (2.0 * (p - target) + 0.1 * p);
        }
        assert!((got[i] - p).abs() < 1e-6, "{i}: {} {p}", got[i]);
    }
}

/// The least squares line through scattered points has a closed form.
#[test]
fn training_finds_the_least_squares_line() {
    let (x, y) = ([0.0_f32, 1.0, 2.0, 3.0, 4.0], [0.9_f32, 3.2, 4.8, 7.3, 8.9]);
    let (slope, offset) = (2.01, 1.0);
    let line = state(&[[1; 4], [1; 4]]);
    let [a, b] = ["p0", "p1"].map(|name| line.tensor(name).unwrap());
    let ctx = Context::new();
    let [xs, ys] = ["x", "y"].map(|name| ctx.input(name, DType::F32, [5]).unwrap());
    let guess = ctx.add(ctx.mul(xs, a).unwrap(), b).unwrap();
    let loss = distance(&ctx, guess, ys);
    ctx.output(guess).unwrap();
    let mut opt = sum(&[a, b], Sgd::new().with_alpha(0.01)).unwrap();
    let graphs = opt.graphs(&ctx, xs, loss).unwrap();
    let mut sched = cpu();
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
    run.set(xs, &x).unwrap();
    run.set(ys, &y).unwrap();
    for _ in 0..2000 {
        run.eval(None).unwrap();
    }
    assert_eq!(run.get::<f32>(guess).unwrap().len(), 5);
    let [a, b] = [a, b].map(|t| t.read::<f32>().unwrap()[0]);
    assert!((a - slope).abs() < 1e-3 && (b - offset).abs() < 1e-3, "{a} {b}");
}

/// The flags for parameters and loss are removed: other graphs and trainings of the same tensors work.
#[test]
fn training_leaves_no_flags_on_its_tensors() {
    let parameters = state(&[SHAPE]);
    parameters.set("p0", &waves(N, 0.0, 0.0)).unwrap();
    let ctx = Context::new();
    let target = ctx.input("target", DType::F32, SHAPE).unwrap();
    let p = parameters.tensor("p0").unwrap();
    let loss = distance(&ctx, p, target);
    let nodes = ctx.graph([loss]).unwrap().n_nodes();
    let first = sum(&[p], Sgd::new()).unwrap().graphs(&ctx, target, loss).unwrap();
    assert_eq!(ctx.graph([loss]).unwrap().n_nodes(), nodes, "the parameter became a node");
    drop(first);

    // The first loss is part of the second one, and must not be derived separately.
    let half = ctx.scale(loss, 0.5).unwrap();
    ctx.output(loss).unwrap();
    let mut second = sum(&[p], Sgd::new().with_alpha(1.0)).unwrap();
    let graphs = second.graphs(&ctx, target, half).unwrap();
    let mut sched = cpu();
    let mut run = second.alloc(&mut sched, &graphs, true).unwrap();
    run.set(target, &[0.5_f32; N]).unwrap();
    let value = run.eval(None).unwrap();
    assert!((run.get::<f32>(loss).unwrap()[0] - 2.0 * value).abs() < 1e-6);
    let moved = p.read::<f32>().unwrap();
    assert!(moved.iter().all(|p| (p - 0.5).abs() < 1e-6), "{moved:?}");
}

/// Two trainings of the same tensors alternate; each keeps its own moments and counts.
#[test]
fn trainings_alternate_on_one_scheduler() {
    let parameters = state(&[SHAPE, SHAPE]);
    let ctx = Context::new();
    let target = ctx.input("target", DType::F32, SHAPE).unwrap();
    let [p, q] = ["p0", "p1"].map(|name| parameters.tensor(name).unwrap());
    let loss = distance(&ctx, ctx.add(p, q).unwrap(), target);
    let mut of_p = sum(&[p], AdamW::new().with_alpha(0.1)).unwrap();
    let mut of_q = sum(&[q], Sgd::new().with_alpha(0.1)).unwrap();
    let graphs = [&of_p, &of_q].map(|opt| opt.graphs(&ctx, target, loss).unwrap());
    let mut sched = cpu();
    let mut last = f32::INFINITY;
    for turn in 1..=30 {
        let (opt, graphs) = if turn % 3 == 0 { (&mut of_q, &graphs[1]) } else { (&mut of_p, &graphs[0]) };
        let mut run = opt.alloc(&mut sched, graphs, true).unwrap();
        run.set(target, &waves(N, 0.0, 1.0)).unwrap();
        last = run.eval(None).unwrap();
    }
    assert_eq!((of_p.steps(), of_q.steps()), (20, 10));
    assert!(last < 0.5, "{last}");
    assert!(p.read::<f32>().unwrap().iter().chain(&q.read::<f32>().unwrap()).all(|v| *v != 0.0));
}

#[test]
fn training_step_requires_its_inputs() {
    let parameters = state(&[SHAPE]);
    let ctx = Context::new();
    let target = ctx.input("target", DType::F32, SHAPE).unwrap();
    let p = parameters.tensor("p0").unwrap();
    let hidden = ctx.sub(p, target).unwrap();
    let loss = ctx.sum(ctx.sqr(hidden).unwrap()).unwrap();
    let mut opt = sum(&[p], Sgd::new()).unwrap();
    let graphs = opt.graphs(&ctx, target, loss).unwrap();
    let mut sched = cpu();
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
    assert!(matches!(run.eval(None), Err(Error::InputNotSet { .. })));
    run.set(target, &[1.0_f32; N]).unwrap();
    run.eval(None).unwrap();
    assert!(matches!(run.get::<f32>(hidden), Err(Error::NotKept { .. })));
    drop(run);
    assert_eq!(opt.steps(), 1);
}
