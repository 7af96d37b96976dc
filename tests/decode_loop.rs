//! A decoding loop: the same small graph is built, allocated and computed again and again, and its KV cache is extended
//! each time. It must plan once, and its memory must not grow. It computes on the CPU, or on the device in the environment
//! variable `GGML_TEST_DEVICE`.

#![cfg(test)]
#![allow(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use ggml::prelude::*;
use ggml::{Error, GraphAllocator};
use testkit::counted::{self, Counted};
use testkit::device::{here, sched};

/// Held by the running test: one of the tests measures memory.
static ALONE: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Bytes allocated by Rust and C together.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn malloced() -> usize {
    // SAFETY: only reads the allocator's counters.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn malloced() -> usize {
    counted::held()
}

const PLACES: usize = 100;

/// One step: writes the token to the cache at `place`; the result is the sum of the entries so far.
fn build<'c>(ctx: &'c Context, cache: Tensor<'c>, place: usize) -> ggml::Result<(Tensor<'c>, Tensor<'c>, Graph<'c>)> {
    let x = ctx.input("x", DType::F32, [4])?;
    let to = ctx.view(cache, [4], [16, 16, 16], place * 16)?;
    let written = ctx.cpy(ctx.scale(x, 2.0)?, to)?;
    let y = ctx.sum_rows(ctx.cont(ctx.transpose(cache)?)?)?;
    let graph = ctx.graph([written, y])?;
    Ok((x, y, graph))
}

#[test]
fn decoder_plans_once_and_its_memory_does_not_grow() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut leaves = WeightsBuilder::new();
    leaves.tensor("cache", DType::F32, [4, PLACES as i64]).unwrap();
    let state = leaves.place_state(here()).unwrap();
    let cache = state.tensor("cache").unwrap();
    let mut sched = sched();
    let mut ctx = Context::new();
    let mut out = [0.0; 4];
    let mut want = vec![0.0_f32; PLACES];
    let mut held = [0; 2];
    for i in 0..10_000 {
        ctx.reset();
        let (x, y, graph) = build(&ctx, cache, i % PLACES).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        let value = (i % 17) as f32;
        run.set(x, &[value; 4]).unwrap();
        run.compute().unwrap();
        run.get_into(y, &mut out).unwrap();
        want[i % PLACES] = 2.0 * value;
        assert_eq!(out, [want.iter().sum::<f32>(); 4], "step {i}");
        drop(run);
        drop(graph);
        if i == 1_000 {
            held = [counted::held(), malloced()];
        }
    }
    assert_eq!(sched.plans(), 1);
    let [rust, both] = held;
    // The test harness allocates too; a leak of two bytes per step would exceed this.
    let [more_rust, more] = [counted::held().saturating_sub(rust), malloced().saturating_sub(both)];
    // A device in Rust frees on its own thread what this one allocated, so only C's allocator knows what is left.
    let is_known = here() == Device::cpu().unwrap();
    let more_rust = if is_known { more_rust } else { 0 };
    let more = if is_known || cfg!(all(target_os = "linux", target_env = "gnu")) { more } else { 0 };
    assert!(more_rust < 16 << 10 && more < 16 << 10, "{more_rust} bytes more in Rust, {more} in all");
}

#[test]
fn sched_plans_anew_for_another_graph() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut leaves = WeightsBuilder::new();
    leaves.tensor("cache", DType::F32, [4, PLACES as i64]).unwrap();
    let state = leaves.place_state(here()).unwrap();
    let cache = state.tensor("cache").unwrap();
    let mut backend = here().init().unwrap();
    let mut allocator = GraphAllocator::new(here().buffer_type());
    let mut ctx = Context::new();
    for i in 0..5 {
        ctx.reset();
        let (.., graph) = build(&ctx, cache, i).unwrap();
        drop(allocator.alloc(&graph, &mut backend).unwrap());
    }
    assert_eq!(allocator.plans(), 1, "a place in the cache needs no plan");
    // In the graph's own memory, a view's offset matters for the plan.
    for i in 0..3 {
        ctx.reset();
        let x = ctx.input("x", DType::F32, [16]).unwrap();
        let part = ctx.view(ctx.neg(x).unwrap(), [4], [16, 16, 16], 16 * i).unwrap();
        let graph = ctx.graph([ctx.abs(part).unwrap()]).unwrap();
        drop(allocator.alloc(&graph, &mut backend).unwrap());
    }
    assert_eq!(allocator.plans(), 4);
}

/// A graph that is dropped late, after its context's reset, returns its lists for reuse only then.
#[test]
fn graphs_alive_together_share_no_lists() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ctx = Context::new();
    let mut sched = sched();
    let x = ctx.input("x", DType::F32, [2]).unwrap();
    for _ in 0..3 {
        let graphs: Vec<_> = (1..8)
            .map(|n| {
                let y = (0..n).fold(x, |t, _| ctx.neg(t).unwrap());
                (n, y, ctx.graph([y]).unwrap())
            })
            .collect();
        for (n, y, graph) in &graphs {
            assert_eq!(graph.n_nodes(), *n);
            let mut run = sched.alloc(graph).unwrap();
            run.set(x, &[1.0_f32, 2.0]).unwrap();
            run.compute().unwrap();
            let sign = if n % 2 == 0 { 1.0 } else { -1.0 };
            assert_eq!(run.get::<f32>(*y).unwrap(), [sign, 2.0 * sign]);
        }
    }
}

/// Tensors get their old placement back, but only while the memory there still belongs to them.
#[test]
fn placement_is_reused_only_while_its_memory_is_unchanged() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64]).unwrap();
    let y = ctx.sqr(ctx.neg(x).unwrap()).unwrap();
    let small = ctx.graph([y]).unwrap();
    let z = ctx.abs(ctx.cont(ctx.transpose(ctx.repeat_4d(y, [64, 512, 1, 1]).unwrap()).unwrap()).unwrap()).unwrap();
    let large = ctx.graph([z, y]).unwrap();
    let run_on = |sched: &mut Sched, graph: &Graph<'_>, value: f32| {
        let mut run = sched.alloc(graph).unwrap();
        run.set(x, &[value; 64]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [value * value; 64]);
        if graph.n_nodes() == large.n_nodes() {
            assert_eq!(run.get::<f32>(z).unwrap(), vec![value * value; 64 * 512]);
        }
    };
    let [mut one, mut two] = [(); 2].map(|()| sched());
    for i in 0..6_u8 {
        let value = f32::from(i);
        run_on(&mut one, &small, value + 1.0);
        run_on(&mut one, &small, value + 2.0);
        match i {
            0 => run_on(&mut one, &large, 3.0),
            1 => one.reserve(&large).unwrap(),
            2 => run_on(&mut two, &small, 4.0),
            3 => {
                let mut run = one.alloc(&small).unwrap();
                run.set(x, &[1.0_f32; 64]).unwrap();
                let stopped = run.compute_with(|_| true, |_| ControlFlow::Break(()));
                assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
            }
            4 => two = sched(),
            _ => {}
        }
        run_on(&mut two, &large, value + 5.0);
        run_on(&mut one, &small, value + 6.0);
        run_on(&mut two, &large, value + 7.0);
    }
    assert_eq!(one.plans(), 5, "the first, and two for each of the others");
}

/// Two graphs of the same tensors have separate lists; those of a dropped graph may belong to another graph already.
#[test]
fn graph_is_computed_by_its_own_lists() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2]).unwrap();
    let y = ctx.neg(x).unwrap();
    let [first, second] = [(); 2].map(|()| ctx.graph([y]).unwrap());
    let mut sched = sched();
    let mut run = |graph: &Graph<'_>, value: f32| {
        let mut run = sched.alloc(graph).unwrap();
        run.set(x, &[value; 2]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [-value; 2]);
    };
    run(&first, 1.0);
    drop(first);
    let other = ctx.graph([ctx.sqr(x).unwrap()]).unwrap();
    run(&second, 2.0);
    drop(other);
    run(&second, 3.0);
}
