//! Trainings of a program's state by a loss that some steps make of it.

use ggml::opt::{AdamW, BuildType, LossType, OptContext, OptParams, OptRun, Optimizer, Sgd};
use ggml::prelude::*;

use crate::bench::{Bench, Known};
use crate::finish;
use crate::leaves::Leaves;
use crate::ops;
use crate::program::World;
use crate::stats::{may_fail, must_fail};
use crate::typed::typed;

/// Makes a loss of a state's tensors, and a few steps of an optimiser.
pub(crate) fn parameters<'c>(
    world: &mut World,
    rng: &mut fastrand::Rng,
    bench: &Bench<'c>,
    ctx: &'c Context,
    leaves: &Leaves,
) {
    let (mut steps, all) = (bench.clone(), bench.targets.clone());
    let mut parameters: Vec<_> = all.iter().filter(|k| k.dtype() == DType::F32 || rng.u32(..16) == 0).collect();
    rng.shuffle(&mut parameters);
    parameters.truncate(rng.usize(1..3));
    // A few others, so that operands are parameters most of the time.
    let others = steps.known.clone();
    steps.known = (0..3).map(|_| others[rng.usize(..others.len())].clone()).collect();
    steps.known.extend(parameters.iter().map(|&k| k.clone()));
    let derived: Vec<_> = ops::table().iter().filter(|row| row.learns).map(|row| row.name).collect();
    for _ in 0..rng.usize(1..5) {
        world.one_of(rng, &mut steps, ctx, &derived);
    }
    let wanted = parameters.iter().fold(0, |all, k| all | k.root);
    let last = steps.known.iter().rev().find(|k| k.deps & wanted == wanted && k.dtype() == DType::F32);
    let Some(last) = last.or(steps.known.last()) else { return };
    let parameters: Vec<_> = parameters.iter().map(|k| k.t).collect();
    let losses = [LossType::Sum, LossType::Sum, LossType::Mean, LossType::MeanSquaredError, LossType::CrossEntropy];
    let params = OptParams::new(losses[rng.usize(..losses.len())])
        .with_optimizer(optimizer(rng))
        .with_opt_period(rng.u32(0..20).clamp(0, 3).max(u32::from(rng.u32(..16) > 0)))
        .with_build_type(
            [BuildType::Opt, BuildType::Opt, BuildType::Opt, BuildType::Grad, BuildType::Forward][rng.usize(..5)],
        );
    let opt = OptContext::new(&parameters, params);
    let graphs = opt.and_then(|opt| opt.graphs(ctx, None, last.t).map(|graphs| (opt, graphs)));
    let (mut opt, graphs) = match graphs {
        Ok(both) => both,
        Err(e) => return refused(world, &e),
    };
    if world.trace {
        crate::say(format_args!("  train {parameters:?} by {:?}: {params:?}", last.t));
    }
    let n = rng.usize(..world.scheds.len() - 1);
    for _ in 0..rng.usize(1..4) {
        let backward = rng.u32(..8) > 0;
        let mut sched = world.scheds.remove(n);
        let run = opt.alloc(&mut sched, &graphs, backward);
        let result = run.map(|mut run| batch(world, rng, &steps, &mut run, leaves, graphs.labels(), last));
        world.scheds.insert(n, sched);
        match result {
            Ok(true) => {}
            Ok(false) => return,
            Err(e) => return refused(world, &e),
        }
        if rng.u32(..4) == 0 {
            may_fail(&mut world.stats, opt.set_optimizer(optimizer(rng)));
        }
        if rng.u32(..8) == 0 {
            opt.reset(rng.bool()).unwrap();
        }
    }
}

/// Counts a training that can't be. ggml refuses some gradients by their strides, which is documented.
fn refused(world: &mut World, e: &Error) {
    if world.trace {
        crate::say(format_args!("  no training: {e}"));
    }
    world.stats.trainings[1] += 1;
    if !matches!(e, Error::Ggml { .. }) {
        world.stats.refuse(e);
    }
}

/// Computes with a graph that has memory; whether there can be another time.
fn batch(
    world: &mut World,
    rng: &mut fastrand::Rng,
    bench: &Bench<'_>,
    run: &mut OptRun<'_, '_, '_>,
    leaves: &Leaves,
    labels: Option<Tensor<'_>>,
    last: &Known<'_>,
) -> bool {
    if rng.u32(..8) == 0 {
        if last.copy.is_some() {
            must_fail(&mut world.stats, "reading before a step", run.get::<f32>(last.t));
        }
        may_fail(&mut world.stats, run.eval(None));
    }
    if !set_inputs(bench, run) {
        return false;
    }
    if let Some(labels) = labels {
        let values: Vec<_> = (0..labels.elements()).map(|_| rng.f32()).collect();
        run.set(labels, &values).unwrap();
    }
    leaves.restore();
    for _ in 0..rng.usize(1..4) {
        match run.eval(None) {
            Ok(_) => world.stats.trainings[0] += 1,
            // Inputs of block types can't be set here.
            Err(Error::InputNotSet { .. }) => return false,
            // Another graph is due.
            Err(e @ Error::Param { .. }) => {
                world.stats.refuse(&e);
                break;
            }
            Err(e) => panic!("a step: {e}"),
        }
        may_fail(&mut world.stats, run.get::<f32>(last.t));
    }
    true
}

/// An optimiser, mostly one that there can be.
fn optimizer(rng: &mut fastrand::Rng) -> Optimizer {
    let number = |rng: &mut fastrand::Rng, value: f32| match rng.u32(..32) {
        0 => f32::from_bits(rng.u32(..)),
        _ => value,
    };
    if rng.bool() {
        Sgd::new().with_alpha(number(rng, 0.01)).with_wd(number(rng, 0.1)).into()
    } else {
        AdamW::new().with_alpha(number(rng, 0.01)).with_wd(number(rng, 0.1)).with_eps(number(rng, 1e-8)).into()
    }
}

/// Sets all inputs; whether that can be done.
fn set_inputs(bench: &Bench<'_>, run: &mut OptRun<'_, '_, '_>) -> bool {
    for input in &bench.inputs {
        let mut set = |bytes: &[u8]| typed!(input.t.dtype(), bytes, |data: T| run.set::<T>(input.t, &data), Ok(()));
        let result = set(&input.bytes);
        match result {
            Ok(()) | Err(Error::NotPart { .. }) => {}
            Err(Error::Index { .. } | Error::Repeated { .. }) => {
                let found = finish::other_indices(input).iter().any(|other| set(other).is_ok());
                if !found {
                    return false;
                }
            }
            Err(e) => panic!("setting {:?}: {e}", input.t),
        }
    }
    true
}
