//! Random computations: each is derived correctly, or refused before ggml sees it.

use ggml::ops::{SetOptions, SoftMaxOptions};
use ggml::opt::{BuildType, LossType, OptContext, OptParams, Rng};
use ggml::prelude::*;

use super::{cpu, state, waves};

const SHAPE: [i64; 4] = [4, 3, 2, 1];
const STEP: f32 = 5e-3;

/// Sums no larger than their terms; otherwise finite differences would be inexact.
fn small<'c>(ctx: &'c Context, a: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
    ctx.scale(a, 0.04)
}

/// Adds one tensor to the existing ones; an error if the operands don't suit the operation.
fn next<'c>(ctx: &'c Context, pool: &[Tensor<'c>], rng: &mut Rng) -> ggml::Result<Tensor<'c>> {
    let mut below = |n: usize| rng.next_u64() as usize % n;
    let (a, b) = (pool[below(pool.len())], pool[below(pool.len())]);
    let like = pool[below(pool.len())];
    let [_, nb1, nb2, nb3] = a.nb();
    let offset = 4 * below(6);
    match below(32) {
        0 => ctx.add(a, b),
        1 => ctx.sub(a, b),
        2 => ctx.mul(a, b),
        3 => ctx.neg(a),
        4 => ctx.scale(a, 0.5),
        5 => ctx.sin(a),
        6 => ctx.cos(a),
        7 => ctx.silu(a),
        8 => ctx.softplus(a),
        9 | 10 => ctx.transpose(a),
        11 => ctx.permute(a, [1, 2, 0, 3]),
        12 | 13 => ctx.cont(a),
        14 => ctx.reshape(a, [6, 4]),
        15 => ctx.reshape(a, SHAPE),
        16 => ctx.view(a, [2, 2], [nb1, nb2, nb3], offset),
        17 => ctx.view(a, [3, 2, 2], [nb1, nb2, nb3], offset),
        18 => ctx.set(a, b, SetOptions::new(offset)),
        19 => ctx.acc(a, b, SetOptions::new(offset)),
        20 => ctx.repeat(small(ctx, ctx.sum(a)?)?, like),
        21 => ctx.repeat(small(ctx, ctx.sum_rows(a)?)?, like),
        22 => ctx.rms_norm(a, 0.1),
        23 => {
            let how = SoftMaxOptions::new().with_scale(0.7);
            ctx.soft_max_ext(a, how)
        }
        24 => ctx.mul_mat(a, b),
        25 => ctx.cast(a, DType::F32),
        26 => ctx.dup(a),
        // A constant, so that no difference spans a jump.
        27 => ctx.mul(ctx.step(ctx.scale_bias(a, 0.0, 1.0)?)?, b),
        28 => ctx.add1(a, small(ctx, ctx.sum(b)?)?),
        29 => ctx.scale_inplace(a, 0.5),
        30 => ctx.diag_mask_zero(a, 0),
        _ => ctx.cpy(a, b),
    }
}

/// The outcome of a computation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Derived,
    Refused,
}

/// Builds the computation of a seed, and compares its derivative in one direction with a finite difference.
fn derive(seed: u64, sched: &mut Sched) -> Fate {
    let mut rng = Rng::new(seed);
    let parameters = state(&[SHAPE, SHAPE]);
    let p = ["p0", "p1"].map(|name| parameters.tensor(name).unwrap());
    let old = [waves(24, 0.0, 0.4), waves(24, 2.0, 0.4)];
    let ctx = Context::new();
    let fixed = ctx.input("fixed", DType::F32, SHAPE).unwrap();
    let mut pool = vec![p[0], p[1], fixed];
    for _ in 0..14 {
        match next(&ctx, &pool, &mut rng) {
            Ok(t) => pool.push(t),
            Err(e) => assert!(!matches!(e, Error::Ggml { .. } | Error::Exception { .. }), "{seed}: {e}"),
        }
    }
    // Both parameters and the newest tensor. Terms are read one by one: differences of large sums are inexact.
    let mut terms = vec![ctx.mul(ctx.sin(p[0]).unwrap(), ctx.cos(p[1]).unwrap()).unwrap()];
    terms.extend(pool.iter().rev().take(4).map(|&t| {
        let weights = ctx.scale(ctx.arange(0.0, t.elements() as f32, 1.0).unwrap(), 0.05).unwrap();
        let weights = ctx.cos(ctx.reshape(weights, t.shape()).unwrap()).unwrap();
        ctx.mul(weights, t).unwrap()
    }));
    let sums: Vec<_> = terms.iter().map(|&t| ctx.sum(ctx.output(t).unwrap()).unwrap()).collect();
    let outputs = sums.into_iter().reduce(|a, b| ctx.add(a, b).unwrap()).unwrap();
    let params = OptParams::new(LossType::Sum).with_build_type(BuildType::Grad);
    let mut opt = OptContext::new(p, params).unwrap();
    let refused = |e: Error| match e {
        Error::Unsupported { .. } => Fate::Refused,
        e => panic!("{seed}: {e}"),
    };
    let graphs = match opt.graphs(&ctx, None, outputs) {
        Ok(graphs) => graphs,
        Err(e) => return refused(e),
    };
    let put = |by: f32| {
        let direction = |i: usize| waves(24, 5.0 + i as f32, 0.0);
        for (i, old) in old.iter().enumerate() {
            let new: Vec<_> = old.iter().zip(direction(i)).map(|(x, d)| by.mul_add(d, *x)).collect();
            parameters.set(&format!("p{i}"), &new).unwrap();
        }
        [direction(0), direction(1)].concat()
    };
    let direction = put(0.0);
    let eval = |opt: &mut OptContext<'_>, sched: &mut Sched, backward| -> ggml::Result<Vec<f64>> {
        let mut run = opt.alloc(sched, &graphs, backward)?;
        match run.set(fixed, &waves(24, 1.0, 0.3)) {
            Ok(()) | Err(Error::NotPart { .. }) => run.eval(None)?,
            Err(e) => return Err(e),
        };
        Ok(terms.iter().flat_map(|&t| run.get::<f32>(t).unwrap()).map(f64::from).collect())
    };
    if let Err(e) = eval(&mut opt, sched, true) {
        return refused(e);
    }
    let gradient: Vec<f32> = p.iter().flat_map(|&t| opt.grad_acc(t).unwrap().read::<f32>().unwrap()).collect();
    let got: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
    let mut at = |by| {
        put(by);
        eval(&mut opt, sched, false).unwrap()
    };
    let mut slope = |h: f32| {
        let change: f64 = at(h).iter().zip(at(-h)).map(|(a, b)| a - b).sum();
        change / (2.0 * f64::from(h))
    };
    // The difference of the two slopes estimates the error of the better one.
    let (coarse, expected) = (slope(2.0 * STEP), slope(STEP));
    let ops = || pool.iter().map(|t| format!("{} {:?}", t.op(), t.shape())).collect::<Vec<_>>();
    let near = (got - expected).abs() < 0.01 * (1.0 + expected.abs()) + (expected - coarse).abs();
    assert!(near, "{seed}: {got}, {expected}: {:?}", ops());
    Fate::Derived
}

#[test]
fn gradients_of_random_graphs_are_right_or_refused() {
    let mut sched = cpu();
    let fates: Vec<_> = (0..600).map(|seed| derive(seed, &mut sched)).collect();
    let derived = fates.iter().filter(|fate| **fate == Fate::Derived).count();
    assert!((200..400).contains(&derived), "{derived} of {} were derived", fates.len());
}
