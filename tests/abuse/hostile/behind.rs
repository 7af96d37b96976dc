//! What is left behind: allocations that are forgotten, plans, other graphs of the same tensors, and destructors that run
//! late.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ggml::prelude::*;
use ggml::{GraphAllocator, ops::CustomOptions};
use ggml_draw::ToDot as _;

use super::assault::{Actor, Scene, again, settle};
use super::bomb::Bomb;
use super::kept::Kept;
use super::stage::{Place, inside, provoke};
use crate::execute;
use crate::finish;
use crate::program::{World, another, spare};
use crate::stats::may_fail;

/// Allocations that are forgotten, with schedulers that are dropped.
pub(super) fn forgotten(
    w: &mut World,
    rng: &mut fastrand::Rng,
    scene: &mut Scene<'_>,
    actor: &mut Actor,
    sched: &mut Sched,
) {
    if !w.leak {
        return;
    }
    actor.as_mut().unwrap().forgot = 1;
    for _ in 0..rng.usize(1..4) {
        let far = w.far.is_some();
        match rng.u32(..4) {
            0 => {
                let Some(mut run) = execute::alloc(&mut w.stats, sched, scene.graph) else { return };
                if rng.bool() {
                    again(w, rng, scene, &mut run);
                }
                #[expect(clippy::mem_forget, reason = "safe code may do that")]
                std::mem::forget(run);
                if rng.bool() {
                    *sched = another(sched);
                }
            }
            1 if !far => {
                let allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
                match Kept::allocator(allocator, scene.graph) {
                    Ok(kept) => kept.forget(rng.bool()),
                    Err(e) => w.stats.refuse(&e),
                }
            }
            2 if !far => {
                let sched = another(sched);
                match Kept::sched(sched, scene.graph) {
                    Ok(mut kept) => {
                        may_fail(&mut w.stats, kept.compute());
                        kept.forget(rng.bool());
                    }
                    Err(e) => w.stats.refuse(&e),
                }
            }
            _ => ask(w, rng, scene, sched),
        }
    }
    ask(w, rng, scene, sched);
}

/// Plans, which are forgotten now and then.
pub(super) fn planned(w: &mut World, rng: &mut fastrand::Rng, scene: &mut Scene<'_>, actor: &mut Actor, _: &mut Sched) {
    if w.far.is_some() {
        return;
    }
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(1).unwrap();
    let bomb = Bomb;
    backend
        .set_abort(move || {
            bomb.act(Place::Abort);
            false
        })
        .unwrap();
    let Ok(mut run) = allocator.alloc(scene.graph, &mut backend) else { return };
    if finish::give(&mut w.stats, rng, scene.bench, &mut run).is_none() {
        return;
    }
    scene.leaves.restore();
    {
        let plan = provoke(actor, || run.plan());
        let Some(Ok(mut plan)) = plan else { return };
        let result = provoke(actor, || plan.compute());
        settle(w, result);
        if w.leak && rng.bool() {
            actor.as_mut().unwrap().forgot = 1;
            #[expect(clippy::mem_forget, reason = "safe code may do that")]
            std::mem::forget(plan);
        }
    }
    drop(run);
    provoke(actor, || drop(backend.clear_abort()));
    let mut run = allocator.alloc(scene.graph, &mut backend).unwrap();
    if let Some(computed) = finish::finish(w, rng, scene.bench, &mut run, &scene.outputs, scene.leaves) {
        execute::compare(&mut w.stats, &scene.chosen, &computed);
    }
}

/// Questions about tensors that may have memory.
fn ask(w: &mut World, rng: &mut fastrand::Rng, scene: &Scene<'_>, sched: &Sched) {
    let y = scene.outputs[rng.usize(..scene.outputs.len())];
    let graph = scene.ctx.graph([y]).unwrap();
    assert!(graph.to_dot().unwrap().contains("digraph"), "no graph");
    for backend in sched.backends() {
        may_fail(&mut w.stats, backend.device().supports_op(y));
        may_fail(&mut w.stats, backend.device().offloads(y));
    }
    let mut other = another(sched);
    may_fail(&mut w.stats, other.reserve(&graph));
}

/// Other graphs of the same tensors, made and used while they are allocated.
pub(super) fn while_allocated(
    w: &mut World,
    rng: &mut fastrand::Rng,
    scene: &mut Scene<'_>,
    _: &mut Actor,
    sched: &mut Sched,
) {
    let Some(mut run) = execute::alloc(&mut w.stats, sched, scene.graph) else { return };
    let before = finish::finish(w, rng, scene.bench, &mut run, &scene.outputs, scene.leaves);
    let y = scene.outputs[rng.usize(..scene.outputs.len())];
    let more = scene.ctx.cont(y).unwrap();
    for t in [y, more] {
        let graph = scene.ctx.graph([t]).unwrap();
        assert!(graph.to_dot().unwrap().contains("digraph"), "no graph");
        let mut other = spare();
        match other.alloc(&graph) {
            Ok(mut second) => {
                let _there = finish::give(&mut w.stats, rng, scene.bench, &mut second);
                scene.leaves.restore();
                may_fail(&mut w.stats, second.compute());
                drop(second.to_dot().unwrap());
            }
            Err(e) => w.stats.refuse(&e),
        }
    }
    if let Some(before) = before {
        for (&t, bytes) in scene.outputs.iter().zip(&before.values) {
            assert!(finish::bytes(&run, t) == *bytes, "another graph changed {t:?}");
        }
    }
    again(w, rng, scene, &mut run);
}

/// Destructors that run while a panic goes on, and loggers that panic then.
pub(super) fn unwound(
    w: &mut World,
    rng: &mut fastrand::Rng,
    scene: &mut Scene<'_>,
    actor: &mut Actor,
    sched: &mut Sched,
) {
    /// Logs when it is dropped, by way of the library.
    struct Prints(Context);
    impl Drop for Prints {
        fn drop(&mut self) {
            let made = self.0.input("x", DType::F32, [4]).and_then(|x| self.0.graph([self.0.neg(x)?]));
            drop(made.and_then(|graph| graph.print()));
            inside(Place::Drop);
        }
    }
    let last = sched.backends().len() - 1;
    let stage = actor.as_mut().unwrap();
    (stage.panics, stage.seldom, stage.left) = (true, rng.u32(1..3), 20);
    let backend = sched.backend_mut(last).unwrap();
    let prints = Prints(Context::new());
    let set = provoke(actor, || {
        backend.set_abort(move || {
            let _captured = &prints;
            inside(Place::Abort);
            false
        })
    });
    settle(w, set);
    let prints = Prints(Context::new());
    let backend = sched.backend_mut(last).unwrap();
    let bomb = Bomb;
    // What was thrown may come out of the next call that does something: setting a closure.
    let set = provoke(actor, || {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _logs = prints;
            resume_unwind(Box::new(()));
        }));
        assert!(ended.is_err(), "a panic was swallowed");
        backend.set_abort(move || {
            bomb.act(Place::Abort);
            false
        })
    });
    settle(w, set);
    {
        let Some(mut run) = execute::alloc(&mut w.stats, sched, scene.graph) else { return };
        if finish::give(&mut w.stats, rng, scene.bench, &mut run).is_some() {
            scene.leaves.restore();
            let result = provoke(actor, || run.compute());
            settle(w, result);
        }
    }
    let mut ctx = bombs(rng.u32(1..4));
    let emptied = provoke(actor, || if rng.bool() { ctx.reset() } else { drop(std::mem::take(&mut ctx)) });
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    assert!(emptied.is_none() || ctx.graph([ctx.neg(x).unwrap()]).is_ok(), "a context is used again");
    let ctx = bombs(1);
    provoke(actor, || {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _goes = ctx;
            resume_unwind(Box::new(()));
        }));
        assert!(ended.is_err(), "a panic was swallowed");
    });
}

/// A context with closures whose captured values do something when they go.
fn bombs(n: u32) -> Context {
    let ctx = Context::new();
    for _ in 0..n {
        let bomb = Bomb;
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), move |_, _| bomb.act(Place::Custom));
        assert!(y.is_ok(), "no custom operation");
    }
    ctx
}
