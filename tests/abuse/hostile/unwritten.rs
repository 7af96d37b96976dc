//! A device in Rust, in host memory, that says that it computed what it did not write.

use std::sync::Arc;

use ggml::prelude::*;
use testkit::host_cpu::{self, CpuControl, Lazy};

use super::choose;
use crate::bench::Bench;
use crate::execute;
use crate::finish::{Computed, bytes, give};
use crate::leaves::Leaves;
use crate::program::{World, one};

thread_local! {
    /// The device of this thread, which nobody else tells anything.
    static DEVICE: (Device, Arc<CpuControl>) = host_cpu::device();
}

/// Random operations on the device, and on the CPU what it can't compute, such as closures, which read its results.
pub(super) fn program(world: &mut World, rng: &mut fastrand::Rng) {
    let (device, control) = DEVICE.with(Clone::clone);
    let ctx = Context::new();
    let mut dims = [(); 4].map(|()| rng.i64(1..7));
    dims[0] = [2, 4, 6, 8, 16, 32][rng.usize(..6)];
    let leaves = Leaves::place(&mut world.stats, rng, dims, None);
    let mut bench = Bench::default();
    leaves.list(&mut bench);
    world.inputs(rng, &mut bench, dims, &ctx);
    for _ in 0..rng.usize(1..10) {
        world.step(rng, &mut bench, dims, &ctx);
    }
    if rng.bool() {
        world.one_of(rng, &mut bench, &ctx, &["map_custom1", "map_custom2", "custom", "map_custom1_inplace"]);
    }
    let Some((chosen, outputs)) = choose(rng, &bench) else { return };
    let graph = ctx.graph(&outputs).unwrap();
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(one()).build().unwrap();
    let Some(mut run) = execute::alloc(&mut world.stats, &mut sched, &graph) else { return };
    let Some(tainted) = give(&mut world.stats, rng, &bench, &mut run) else { return };
    for _ in 0..rng.usize(1..4) {
        let how = [Lazy::Skips, Lazy::Stops, Lazy::Panics][rng.usize(..3)];
        control.be_lazy(Some((rng.usize(..12), how)));
        leaves.restore();
        let result = run.compute();
        let lazy = control.was_lazy();
        control.be_lazy(None);
        if world.trace {
            crate::say(format_args!("  {how:?}: {lazy}, {:?}", result.as_ref().err()));
        }
        match result {
            Ok(()) => assert!(!lazy, "a computation went well whose device was lazy"),
            Err(Error::DeviceFailed { reason, .. }) => {
                assert!(lazy && reason.contains("has no value"), "{reason}");
                let unread = |y: &&Tensor<'_>| matches!(run.get_bytes(**y), Err(Error::NotComputed { .. }));
                assert_eq!(outputs.iter().filter(unread).count(), outputs.len(), "results that can be read");
                world.stats.hostile.two_devices += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    leaves.restore();
    run.compute().unwrap();
    let values = outputs.iter().map(|&y| bytes(&run, y)).collect();
    execute::compare(&mut world.stats, &chosen, &Computed { values, tainted });
}
