//! Computations of what a program made, and all that can be done wrong on the way.

use ggml::prelude::*;
use ggml::{Result, Threads};

use crate::bench::{Bench, Known};
use crate::decode_or_none;
use crate::finish::{Computed, bytes, give};
use crate::leaves::Leaves;
use crate::misuse::{misuse, observed};
use crate::program::World;
use crate::stats::{Stats, may_fail, must_fail};

/// Computes graphs of some of the tensors, and compares what comes of it with the models, and between two computations.
pub(crate) fn graphs<'c>(
    world: &mut World,
    rng: &mut fastrand::Rng,
    bench: &Bench<'c>,
    ctx: &'c Context,
    leaves: &Leaves,
) {
    let made: Vec<_> = bench.known.iter().filter(|k| k.copy.is_some()).collect();
    if made.is_empty() {
        assert!(ctx.graph([bench.known[0].t]).is_err(), "a graph without operations");
        return;
    }
    // Graphs that are held have lists of their own; those of the others are used again.
    let mut held = Vec::new();
    for _ in 0..rng.usize(1..3) {
        let chosen: Vec<_> = match rng.u32(..3) {
            0 => made.clone(),
            1 => vec![made[made.len() - 1]],
            _ => (0..rng.usize(1..5)).map(|_| made[rng.usize(..made.len())]).collect(),
        };
        let mut outputs: Vec<_> = chosen.iter().filter_map(|k| k.copy).collect();
        if rng.u32(..8) == 0 {
            // Not through a copy; it stays marked.
            outputs.push(chosen[0].t);
        }
        if world.trace {
            crate::say(format_args!("  compute {outputs:?}"));
        }
        let gone = held.pop().filter(|_| rng.bool());
        if rng.bool() {
            held.push(ctx.graph([made[rng.usize(..made.len())].t]).unwrap());
        }
        drop(gone);
        let graph = ctx.graph(&outputs).unwrap();
        // Threads spin for a tenth of a second before they rest, which others have to wait for.
        let n = if rng.u32(..512) == 0 { world.scheds.len() - 1 } else { rng.usize(..world.scheds.len() - 1) };
        let mut sched = world.scheds.remove(n);
        if rng.u32(..4) == 0 {
            leaves.scribble(&mut world.stats, rng);
        }
        if rng.u32(..32) == 0 {
            backends(&mut world.stats, rng, &mut sched);
        }
        if rng.u32(..48) == 0 {
            stopped(&mut world.stats, rng, bench, &graph, &mut sched, leaves);
        }
        // Sums of several threads' sums depend on their number.
        let alone = sched.backends().iter().all(|b| b.threads() == 1) && !has_loose_bits(&graph);
        let first = scheduled(world, rng, bench, &graph, &mut sched, &chosen, &outputs, leaves);
        let again = first.is_some() && rng.u32(..8) == 0;
        for _ in 0..if again { rng.usize(1..4) } else { 0 } {
            // The plan is still there, unless another graph was allocated in between.
            if rng.u32(..4) == 0 {
                let other = made[rng.usize(..made.len())];
                may_fail(&mut world.stats, sched.reserve(&ctx.graph([other.t]).unwrap()));
            }
            let twin = rng.bool().then(|| ctx.graph(&outputs).unwrap());
            let graph = twin.as_ref().unwrap_or(&graph);
            let next = scheduled(world, rng, bench, graph, &mut sched, &chosen, &outputs, leaves);
            if let (Some(first), Some(next), true) = (&first, next, alone) {
                same(&mut world.stats, &outputs, first, &next);
            }
        }
        world.scheds.insert(n, sched);
        let Some(first) = first else { continue };
        compare(&mut world.stats, &chosen, &first);
        if alone && world.far.is_none() && rng.u32(..3) == 0 {
            let second = allocated(world, rng, bench, &graph, &outputs, leaves);
            for ((t, a), b) in outputs.iter().zip(&first.values).zip(second) {
                assert!(*a == b, "two computations of {t:?} ({}) differ: {a:?} {b:?}", t.op());
                world.stats.values += t.elements() as u64;
            }
        }
    }
}

/// Changes the threads of a scheduler's last backend, now and then, or replaces it, and asks it for what it can't do.
fn backends(stats: &mut Stats, rng: &mut fastrand::Rng, sched: &mut Sched) {
    assert!(sched.backend_mut(usize::MAX).is_none(), "a backend that is not there");
    let last = sched.backends().len() - 1;
    let backend = sched.backend_mut(last).unwrap();
    for wild in [0, Backend::MAX_THREADS + 1, usize::MAX, 1 << 31, 1 << 32] {
        must_fail(stats, "a number of threads", backend.set_threads(wild));
    }
    backend.synchronize().unwrap();
    if rng.u32(..4) == 0 {
        let threads = backend.threads();
        *backend = Backend::cpu().unwrap();
        backend.set_threads(Threads::new(threads).with_all(rng.bool())).unwrap();
    }
    if rng.u32(..8) == 0 {
        let before = backend.threads();
        backend.set_threads(rng.usize(1..4)).unwrap();
        backend.set_threads(Threads::new(before).with_all(rng.bool())).unwrap();
    }
}

/// A computation that may be stopped halfway.
fn stopped(
    stats: &mut Stats,
    rng: &mut fastrand::Rng,
    bench: &Bench<'_>,
    graph: &Graph<'_>,
    sched: &mut Sched,
    leaves: &Leaves,
) {
    for i in 0..sched.backends().len() {
        let mut stop = rng.fork();
        may_fail(stats, sched.backend_mut(i).unwrap().set_abort(move || stop.u32(..3) == 0));
    }
    if let Some(mut run) = alloc(stats, sched, graph) {
        for input in &bench.inputs {
            may_fail(stats, run.set_bytes(input.t, &input.bytes));
        }
        leaves.restore();
        for _ in 0..2 {
            may_fail(stats, run.compute());
        }
    }
    for i in 0..sched.backends().len() {
        may_fail(stats, sched.backend_mut(i).unwrap().clear_abort());
    }
}

/// Gives a graph memory, unless it can't be spread over the backends: operations on experts over several of any kind, and
/// what works in place over different ones.
pub(crate) fn alloc<'s, 'c>(stats: &mut Stats, sched: &'s mut Sched, graph: &'s Graph<'c>) -> Option<Run<'s, 'c>> {
    let several = sched.backends().len() > 1;
    let differ = sched.backends().iter().any(|b| b.device() != sched.backends()[0].device());
    match sched.alloc(graph) {
        Ok(run) => Some(run),
        Err(e @ Error::Unsupported { .. }) if differ || several && e.to_string().contains("mul_mat_id") => {
            stats.refuse(&e);
            None
        }
        Err(e) => panic!("what was reserved can't be allocated: {e}"),
    }
}

/// Whether a kernel quantises to `iq4_nl`: codes of zeros are then what was on its stack (docs/safety.md), and the signs of
/// the zeros that they stand for likewise.
fn has_loose_bits(graph: &Graph<'_>) -> bool {
    graph
        .nodes()
        .any(|t| t.dtype() == DType::IQ4_NL && matches!(t.op_name().as_str(), "CPY" | "SET_ROWS" | "DUP" | "CONT"))
}

/// Compares two computations of the same.
fn same(stats: &mut Stats, outputs: &[Tensor<'_>], a: &Computed, b: &Computed) {
    for ((t, a), b) in outputs.iter().zip(&a.values).zip(&b.values) {
        assert!(a == b, "two computations of {t:?} ({}) differ: {a:?} {b:?}", t.op());
        stats.values += t.elements() as u64;
    }
}

pub(crate) fn compare(stats: &mut Stats, chosen: &[&Known<'_>], computed: &Computed) {
    for (known, bytes) in chosen.iter().zip(&computed.values) {
        let counts = &mut stats.ops[known.op];
        counts.computed += 1;
        let Some(model) = known.model.as_ref().filter(|_| known.deps & computed.tainted == 0) else { continue };
        let Some(got) = decode_or_none(model.dtype, bytes) else { continue };
        counts.compared += 1;
        let want = model.array();
        let largest = want.data.iter().fold(0.0_f64, |most, w| most.max(w.abs()));
        let allowed = model.error + 1e-6 + largest * testkit::device::rounding();
        assert_eq!(got.len(), want.data.len(), "{:?}", known.t);
        for (i, (g, w)) in got.iter().zip(&want.data).enumerate() {
            let near = (g - w).abs() <= allowed;
            assert!(near, "{:?} ({}): element {i} is {g}, should be {w} to within {}", known.t, known.t.op(), allowed);
        }
        stats.values += got.len() as u64;
    }
}

/// An allocation of what another one has, or had when it was forgotten: that goes well, unless the devices can't reach the
/// graph's weights or can't run it.
fn second<T>(stats: &mut Stats, result: Result<T>) {
    match result {
        Ok(_) => {}
        Err(e @ Error::Unsupported { .. }) => stats.refuse(&e),
        Err(e) => panic!("a second allocation: {e}"),
    }
}

/// Computes on a scheduler, after having tried whatever must not be done.
#[expect(clippy::too_many_arguments, reason = "a part of one function")]
fn scheduled<'c>(
    world: &mut World,
    rng: &mut fastrand::Rng,
    bench: &Bench<'c>,
    graph: &Graph<'c>,
    sched: &mut Sched,
    chosen: &[&Known<'c>],
    outputs: &[Tensor<'c>],
    leaves: &Leaves,
) -> Option<Computed> {
    let mut run = alloc(&mut world.stats, sched, graph)?;
    if rng.u32(..4) == 0 {
        let stats = &mut world.stats;
        must_fail(stats, "reading before computing", run.get_bytes(outputs[0]));
        if bench.inputs.iter().any(|i| graph_has(&mut run, stats, i.t)) {
            must_fail(stats, "computing without inputs", run.compute());
        }
        for _ in 0..rng.usize(1..6) {
            misuse(stats, rng, bench, &mut run, outputs);
        }
        let other = &mut world.scheds[0];
        second(&mut world.stats, other.alloc(graph));
        second(&mut world.stats, world.allocators[0].alloc(graph, &mut world.backend));
    }
    if world.leak && rng.u32(..400) == 0 {
        #[expect(clippy::mem_forget, reason = "safe code may do that")]
        std::mem::forget(run);
        second(&mut world.stats, sched.alloc(graph));
        return None;
    }
    let Some(tainted) = give(&mut world.stats, rng, bench, &mut run) else {
        // A part of it may have been set, or nothing.
        may_fail(&mut world.stats, run.compute());
        return None;
    };
    leaves.restore();
    if rng.u32(..12) == 0 {
        observed(&mut world.stats, rng, &mut run);
        leaves.restore();
    }
    if rng.u32(..64) == 0 {
        drop(run.profile().unwrap().to_string());
    } else {
        run.compute().unwrap();
    }
    let values: Vec<_> = outputs.iter().map(|&y| bytes(&run, y)).collect();
    if rng.u32(..6) == 0 {
        for _ in 0..rng.usize(1..6) {
            misuse(&mut world.stats, rng, bench, &mut run, outputs);
        }
    }
    debug_assert!(chosen.len() <= values.len(), "copies come first");
    Some(Computed { values, tainted })
}

/// Whether an input is part of the allocated graph.
fn graph_has(run: &mut Run<'_, '_>, stats: &mut Stats, t: Tensor<'_>) -> bool {
    match run.get_bytes(t) {
        Err(Error::NotPart { .. }) => false,
        Err(e) => {
            stats.refuse(&e);
            true
        }
        Ok(_) => panic!("an input without a value was read"),
    }
}

/// Computes on one backend without a scheduler.
fn allocated<'c>(
    world: &mut World,
    rng: &mut fastrand::Rng,
    bench: &Bench<'c>,
    graph: &Graph<'c>,
    outputs: &[Tensor<'c>],
    leaves: &Leaves,
) -> Vec<Vec<u8>> {
    let n = rng.usize(..world.allocators.len());
    let mut run = world.allocators[n].alloc(graph, &mut world.backend).unwrap();
    assert!(give(&mut world.stats, rng, bench, &mut run).is_some(), "the scheduler's allocation took others");
    leaves.restore();
    run.compute().unwrap();
    outputs.iter().map(|&t| bytes(&run, t)).collect()
}
