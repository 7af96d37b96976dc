//! Trainings of a program's state by a loss that some steps make of it.

use ggml::opt::{AdamW, Optimizer, Running, Sgd, Training};
use ggml::prelude::*;

use crate::bench::Bench;
use crate::execute;
use crate::leaves::Leaves;
use crate::program::World;
use crate::stats::{may_fail, must_fail};
use crate::typed::typed;

/// Operations that mostly can be derived.
const STEPS: &[&str] = &[
    "add",
    "sub",
    "mul",
    "div",
    "add1",
    "scale",
    "sum",
    "sum_rows",
    "mean",
    "repeat",
    "repeat_back",
    "cont",
    "reshape",
    "view",
    "permute",
    "transpose",
    "mul_mat",
    "get_rows",
    "soft_max",
    "rope",
    "rms_norm",
    "cross_entropy_loss",
    "im2col",
    "pool_2d",
    "unary",
    "glu",
    "neg",
    "abs",
    "relu",
    "silu",
    "exp",
    "sqr",
    "sqrt",
    "log",
    "sin",
    "cos",
    "diag_mask_inf",
    "diag_mask_zero",
    "out_prod",
    "acc",
    "set",
    "cpy",
    "leaky_relu",
    "norm",
    "concat",
    "clamp",
];

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
    for _ in 0..rng.usize(1..5) {
        world.one_of(rng, &mut steps, ctx, STEPS);
    }
    let wanted = parameters.iter().fold(0, |all, k| all | k.root);
    let last = steps.known.iter().rev().find(|k| k.deps & wanted == wanted && k.dtype() == DType::F32);
    let Some(last) = last.or(steps.known.last()) else { return };
    let loss = if rng.u32(..16) == 0 { Ok(last.t) } else { ctx.sum(last.t) };
    let Ok(loss) = loss.inspect_err(|e| world.stats.refuse(e)) else { return };
    let parameters: Vec<_> = parameters.iter().map(|k| k.t).collect();
    let optimizer = optimizer(rng);
    let keep = if rng.bool() { vec![last.t] } else { Vec::new() };
    let training = Training::new(ctx, loss, keep, &parameters, optimizer);
    // ggml refuses some gradients by their strides, which is documented.
    let ours = |e: &Error| !matches!(e, Error::Ggml { .. });
    let mut training = match training {
        Ok(training) => training,
        Err(e) => {
            if world.trace {
                crate::say(format_args!("  no training of {parameters:?} by {loss:?}: {e}"));
            }
            world.stats.trainings[1] += 1;
            if ours(&e) {
                world.stats.refuse(&e);
            }
            return;
        }
    };
    if world.trace {
        crate::say(format_args!("  train {parameters:?} by {loss:?}"));
    }
    let n = rng.usize(..world.scheds.len() - 1);
    let mut run = match training.start(&mut world.scheds[n]) {
        Ok(run) => run,
        Err(e) => {
            world.stats.trainings[1] += 1;
            if ours(&e) {
                world.stats.refuse(&e);
            }
            return;
        }
    };
    if rng.u32(..8) == 0 {
        if last.copy.is_some() {
            must_fail(&mut world.stats, "reading before a step", run.get::<f32>(last.t));
        }
        may_fail(&mut world.stats, run.step());
    }
    if !set_inputs(&steps, &mut run) {
        return;
    }
    leaves.restore();
    for _ in 0..rng.usize(1..4) {
        match run.step() {
            Ok(_) => world.stats.trainings[0] += 1,
            // Inputs of block types can't be set here.
            Err(Error::InputNotSet { .. }) => return,
            Err(e) => panic!("a step: {e}"),
        }
        if rng.u32(..4) == 0 {
            may_fail(&mut world.stats, run.set_optimizer(self::optimizer(rng)));
        }
        may_fail(&mut world.stats, run.get::<f32>(last.t));
    }
}

/// An optimiser, mostly one that there can be.
fn optimizer(rng: &mut fastrand::Rng) -> Optimizer {
    let number = |rng: &mut fastrand::Rng, value: f32| match rng.u32(..32) {
        0 => f32::from_bits(rng.u32(..)),
        _ => value,
    };
    if rng.bool() {
        Sgd { alpha: number(rng, 0.01), wd: number(rng, 0.1) }.into()
    } else {
        AdamW { alpha: number(rng, 0.01), wd: number(rng, 0.1), eps: number(rng, 1e-8), ..AdamW::default() }.into()
    }
}

/// Sets all inputs; whether that can be done.
fn set_inputs(bench: &Bench<'_>, run: &mut Running<'_, '_>) -> bool {
    for input in &bench.inputs {
        let mut set = |bytes: &[u8]| typed!(input.t.dtype(), bytes, |data: T| run.set::<T>(input.t, &data), Ok(()));
        let result = set(&input.bytes);
        match result {
            Ok(()) | Err(Error::NotPart { .. }) => {}
            Err(Error::Index { .. } | Error::Repeated { .. }) => {
                let found = execute::other_indices(input).iter().any(|other| set(other).is_ok());
                if !found {
                    return false;
                }
            }
            Err(e) => panic!("setting {:?}: {e}", input.t),
        }
    }
    true
}
