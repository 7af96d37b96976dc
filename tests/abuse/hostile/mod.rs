//! Programs whose own code runs while the library's does: closures, loggers and destructors that call it again, panic, and
//! keep what they made; allocations that are forgotten; memory that runs out; several devices and threads.
//!
//! Tensors, graphs and leaves of such programs live for ever, so that thread-locals reach them from wherever code of the
//! program's runs.

mod acts;
mod assault;
mod behind;
mod bomb;
mod devices;
mod kept;
mod limit;
mod logger;
mod packed;
mod plain;
mod short;
mod stage;
mod threads;
mod tight;
mod turns;
mod unwritten;

use std::sync::{Mutex, PoisonError};

use ggml::prelude::*;

use crate::bench::{Bench, Known};
use crate::execute;
use crate::leaves::Leaves;
use crate::program::World;
use assault::Scene;
use stage::Stage;

pub(crate) use bomb::Bomb;
pub(crate) use devices::Together;
pub(crate) use logger::install;
pub(crate) use stage::Place;

/// One program of this kind.
pub(crate) fn program(world: &mut World, rng: &mut fastrand::Rng) {
    let kind = rng.u32(..32);
    let kind = match world.only.as_deref() {
        Some("threads") => 0,
        Some("tight") => 1,
        Some("packed") => 3,
        Some("devices") => 5,
        Some("turns") => 8,
        Some("short") => 10,
        Some("unwritten") => 12,
        Some(_) => 31,
        None => kind,
    };
    match kind {
        0 => threads::program(rng),
        1 => tight::program(world, rng),
        2..5 => packed::program(world, rng),
        5..8 => devices::program(world, rng),
        8..10 => turns::program(world, rng),
        10..12 => short::program(world, rng),
        12 => unwritten::program(world, rng),
        _ => any(world, rng),
    }
    world.stats.programs += 1;
}

/// A program of random operations, which is attacked in several ways.
fn any(world: &mut World, rng: &mut fastrand::Rng) {
    let ctx = forever(Context::new());
    let mut dims = [(); 4].map(|()| rng.i64(1..7));
    dims[0] = [2, 4, 6, 8, 16, 32][rng.usize(..6)];
    let leaves = forever(Leaves::place(&mut world.stats, rng, dims, world.far));
    let mut bench = Bench::default();
    leaves.list(&mut bench);
    world.inputs(rng, &mut bench, dims, ctx);
    for _ in 0..rng.usize(1..10) {
        world.step(rng, &mut bench, dims, ctx);
    }
    if rng.bool() {
        world.one_of(rng, &mut bench, ctx, &["map_custom1", "map_custom2", "custom", "map_custom1_inplace"]);
    }
    for _ in 0..rng.usize(1..4) {
        let Some((chosen, outputs)) = choose(rng, &bench) else { return };
        if world.trace {
            crate::say(format_args!("  attack {outputs:?}"));
        }
        let graph = forever(ctx.graph(&outputs).unwrap());
        let mut stage = Stage::new(rng.fork(), ctx, graph, outputs.clone(), leaves);
        let is_state = |t: Tensor<'_>| bench.targets.iter().any(|k| k.t == t);
        stage.writes = graph.nodes().any(|node| graph.sources(node).any(is_state));
        let mut stage = Some(Box::new(stage));
        let mut scene = Scene { bench: &bench, ctx, leaves, graph, chosen, outputs };
        assault::any(world, rng, &mut scene, &mut stage);
        let stage = stage.unwrap();
        world.stats.hostile.reentered += u64::from(stage.calls > 0);
        world.stats.hostile.panicked += u64::from(stage.thrown > 0);
        world.stats.hostile.forgot += stage.forgot;
        world.stats.hostile.out_of_memory += stage.out_of_memory;
        world.stats.hostile.two_devices += u64::from(world.far.is_some());
        let mut kept = stage.kept;
        kept::check(world, rng, &scene, &mut kept);
    }
    // Whatever was done to them: tensors can be used by whoever comes next.
    execute::graphs(world, rng, &bench, ctx, leaves);
}

/// Some of what a program made, and copies of it to compute.
fn choose<'b, 'c>(rng: &mut fastrand::Rng, bench: &'b Bench<'c>) -> Option<(Vec<&'b Known<'c>>, Vec<Tensor<'c>>)> {
    let made: Vec<_> = bench.known.iter().filter(|k| k.copy.is_some()).collect();
    let last = *made.last()?;
    let chosen = match rng.u32(..3) {
        0 => made,
        1 => vec![last],
        _ => (0..rng.usize(1..4)).map(|_| made[rng.usize(..made.len())]).collect(),
    };
    let outputs = chosen.iter().filter_map(|k| k.copy).collect();
    Some((chosen, outputs))
}

/// Keeps a value until the process ends. Its address stays known, for whoever looks for leaks.
fn forever<T>(value: T) -> &'static T {
    static KNOWN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let kept: &'static T = Box::leak(Box::new(value));
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).push(std::ptr::from_ref(kept).addr());
    kept
}
