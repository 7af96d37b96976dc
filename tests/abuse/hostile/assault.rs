//! Ways to have code of the program's called, and to leave things behind.

use std::ops::ControlFlow;

use ggml::prelude::*;
use ggml::{GraphAllocator, Result};

use super::behind;
use super::bomb::Bomb;
use super::kept;
use super::stage::{Place, Stage, inside, provoke};
use crate::bench::{Bench, Known};
use crate::execute;
use crate::finish;
use crate::leaves::Leaves;
use crate::program::{World, one};
use crate::stats::may_fail;

/// A graph of a program's.
pub(super) struct Scene<'b> {
    pub(super) bench: &'b Bench<'static>,
    pub(super) ctx: &'static Context,
    pub(super) leaves: &'static Leaves,
    pub(super) graph: &'static Graph<'static>,
    pub(super) chosen: Vec<&'b Known<'static>>,
    pub(super) outputs: Vec<Tensor<'static>>,
}

pub(super) type Actor = Option<Box<Stage>>;
type Assault = fn(&mut World, &mut fastrand::Rng, &mut Scene<'_>, &mut Actor, &mut Sched);

const ALL: &[(&str, Assault)] = &[
    ("observed", observed),
    ("stopped", stopped),
    ("computed", computed),
    ("beside", beside),
    ("logged", logged),
    ("no memory", no_memory),
    ("chosen", chosen),
    ("transferred", transferred),
    ("forgotten", behind::forgotten),
    ("planned", behind::planned),
    ("while allocated", behind::while_allocated),
    ("unwound", behind::unwound),
];

/// One of them.
pub(super) fn any(world: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor) {
    let (name, assault) = ALL[rng.usize(..ALL.len())];
    if world.only.as_ref().is_some_and(|only| only != name) {
        return;
    }
    if world.trace {
        crate::say(format_args!("    {name}"));
    }
    let stage = actor.as_mut().unwrap();
    stage.left = rng.u32(1..6);
    stage.seldom = rng.u32(1..4);
    stage.panics = rng.u32(..3) == 0;
    stage.trace = world.trace;
    let n = rng.usize(..world.scheds.len() - 1);
    let mut sched = world.scheds.remove(n);
    assault(world, rng, scene, actor, &mut sched);
    for i in 0..sched.backends().len() {
        drop(sched.backend_mut(i).unwrap().clear_abort());
    }
    // Nothing failed inside ggml: it goes on.
    may_fail(&mut world.stats, sched.reserve(scene.graph));
    world.scheds.insert(n, sched);
}

/// What a call may end in of which code of the program's had a part.
pub(super) fn settle<T>(world: &mut World, result: Option<Result<T>>) -> bool {
    match result {
        Some(Ok(_)) => true,
        Some(Err(e)) => {
            world.stats.refuse(&e);
            false
        }
        None => false,
    }
}

/// With closures that see results.
fn observed(w: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, sched: &mut Sched) {
    let Some(mut run) = execute::alloc(&mut w.stats, sched, scene.graph) else { return };
    if finish::give(&mut w.stats, rng, scene.bench, &mut run).is_none() {
        return;
    }
    scene.leaves.restore();
    let (mut ask, mut see, bomb) = (rng.fork(), rng.fork(), Bomb);
    let result = provoke(actor, || {
        run.compute_with(
            move |_| {
                bomb.act(Place::Ask);
                ask.bool()
            },
            |seen| {
                inside(Place::See);
                drop(seen.get::<f32>());
                if see.u32(..8) == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )
    });
    settle(w, result);
    if rng.bool() {
        again(w, rng, scene, &mut run);
    }
}

/// Computes once; `None` if there is no memory, or an input is refused.
fn compute<'s>(
    w: &mut World,
    rng: &mut fastrand::Rng,
    scene: &Scene<'_>,
    actor: &mut Actor,
    sched: &'s mut Sched,
) -> Option<Run<'s, 'static>> {
    let mut run = execute::alloc(&mut w.stats, sched, scene.graph)?;
    finish::give(&mut w.stats, rng, scene.bench, &mut run)?;
    scene.leaves.restore();
    let result = provoke(actor, || run.compute());
    settle(w, result);
    Some(run)
}

/// Computes as if nothing had been.
pub(super) fn again(w: &mut World, rng: &mut fastrand::Rng, scene: &Scene<'_>, run: &mut Run<'_, 'static>) {
    if let Some(computed) = finish::finish(w, rng, scene.bench, run, &scene.outputs, scene.leaves) {
        execute::compare(&mut w.stats, &scene.chosen, &computed);
    }
}

/// With a closure that may stop it, which is replaced afterwards.
fn stopped(w: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, sched: &mut Sched) {
    let last = sched.backends().len() - 1;
    for _ in 0..rng.usize(1..3) {
        let (mut stop, bomb) = (rng.fork(), Bomb);
        let backend = sched.backend_mut(last).unwrap();
        // The one before goes.
        let set = provoke(actor, || {
            backend.set_abort(move || {
                bomb.act(Place::Abort);
                stop.u32(..16) == 0
            })
        });
        settle(w, set);
        if compute(w, rng, scene, actor, sched).is_none() {
            return;
        }
    }
    let backend = sched.backend_mut(last).unwrap();
    let cleared = provoke(actor, || if rng.bool() { backend.clear_abort() } else { backend.set_abort(|| false) });
    settle(w, cleared);
}

/// With custom operations, if the program has some.
fn computed(w: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, sched: &mut Sched) {
    if let Some(mut run) = compute(w, rng, scene, actor, sched) {
        again(w, rng, scene, &mut run);
    }
}

/// While something else runs.
fn beside(w: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, sched: &mut Sched) {
    let Some(mut run) = execute::alloc(&mut w.stats, sched, scene.graph) else { return };
    if finish::give(&mut w.stats, rng, scene.bench, &mut run).is_none() {
        return;
    }
    scene.leaves.restore();
    let bomb = Bomb;
    let result = provoke(actor, || {
        run.compute_async(move || {
            bomb.act(Place::Meanwhile);
            bomb.act(Place::Meanwhile);
        })
    });
    settle(w, result);
    again(w, rng, scene, &mut run);
}

/// What logs, and goes well.
fn logged(w: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, sched: &mut Sched) {
    let mut held = None;
    if rng.bool() {
        held = execute::alloc(&mut w.stats, sched, scene.graph);
    }
    let result = provoke(actor, || scene.graph.print());
    settle(w, result);
    if let Some(run) = &mut held {
        again(w, rng, scene, run);
    }
}

/// Where memory can't be had, ggml logs in the middle of an allocation.
fn no_memory(w: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, sched: &mut Sched) {
    let huge = scene.ctx.input("huge", DType::F32, [1 << 25, 1 << 21]).unwrap();
    let huge = scene.ctx.neg(huge).unwrap();
    let mut all = scene.outputs.clone();
    all.insert(rng.usize(..=all.len()), huge);
    let both = scene.ctx.graph(&all).unwrap();
    for _ in 0..rng.usize(1..3) {
        let poisoned = match rng.u32(..3) {
            0 => provoke(actor, || sched.alloc(&both).map(drop)),
            1 => provoke(actor, || sched.reserve(&both)),
            _ => {
                let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
                let mut backend = one();
                provoke(actor, || allocator.alloc(&both, &mut backend).map(drop))
            }
        };
        match poisoned {
            Some(Ok(())) => panic!("256 TiB were had"),
            Some(Err(Error::OutOfMemory { .. })) => actor.as_mut().unwrap().out_of_memory = 1,
            Some(Err(e)) => w.stats.refuse(&e),
            None => {}
        }
    }
    let stage = actor.as_mut().unwrap();
    let mut kept = std::mem::take(&mut stage.kept);
    kept::check(w, rng, scene, &mut kept);
}

/// With a closure that chooses where tensors lie.
fn chosen(w: &mut World, _: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, _: &mut Sched) {
    let cpu = Device::cpu().unwrap();
    let mut bufts = vec![cpu.buffer_type()];
    bufts.extend(w.far);
    if bufts.len() == 1 {
        // None of it may be used, but the closure is asked before.
        bufts.extend(cpu.extra_buffer_types().unwrap());
    }
    let bomb = Bomb;
    let allocator = GraphAllocator::with_buffers(&bufts, move |_| {
        bomb.act(Place::Choose);
        0
    });
    let Ok(mut allocator) = allocator else { return };
    let mut backend = one();
    let result = provoke(actor, || allocator.alloc(scene.graph, &mut backend).map(drop));
    settle(w, result);
    let result = provoke(actor, || allocator.reserve(scene.graph));
    settle(w, result);
    provoke(actor, move || drop(allocator));
}

/// Within the closure in which transfers are queued.
fn transferred(w: &mut World, _: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, _: &mut Sched) {
    let leaves = scene.leaves;
    let Some((state, name, bytes)) = leaves.first_of_state() else { return };
    let mut read = vec![0.0_f32; state.tensor(name).unwrap().elements()];
    leaves.restore();
    let backend = &mut w.backend;
    let result = provoke(actor, || {
        backend.transfers(|queue| {
            inside(Place::Transfers);
            let result = queue.get(state.tensor(name)?, &mut read);
            inside(Place::Transfers);
            result
        })
    });
    // The closure may have written to it meanwhile.
    if let (Some(Ok(())), DType::F32, 0) = (&result, state.tensor(name).unwrap().dtype(), actor.as_ref().unwrap().calls)
    {
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&read), bytes, "what was read");
    }
    settle(w, result);
}
