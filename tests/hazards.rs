//! Attempts the hazards that ggml leaves to its caller: each test is named after its number in `docs/safety.md`.
//!
//! Hazards of single operations are in `tests/ops`, those prevented by types in `tests/ui`.

#![cfg(test)]
#![allow(clippy::cast_precision_loss, clippy::mem_forget, reason = "small numbers, exact results, leaks")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results, leaks")]

use ggml::prelude::*;
use ggml::{Error, GraphAllocator};

fn cpu() -> Sched {
    Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap()
}

/// `relu(abs(... x ...))`, `n` operations one after the other.
fn chain<'c>(ctx: &'c Context, x: Tensor<'c>, n: usize) -> Tensor<'c> {
    (0..n).fold(x, |t, i| if i % 2 == 0 { ctx.neg(t).unwrap() } else { ctx.abs(t).unwrap() })
}

#[test]
fn h02_input_refuses_dimensions_that_make_no_tensor() {
    let ctx = Context::new();
    for ne in [[0, 1], [-1, 4], [4, -4], [i64::MIN, 1], [1 << 61, 2], [i64::MAX, i64::MAX], [1 << 40, 1 << 40]] {
        assert!(matches!(ctx.input("x", DType::F32, ne), Err(Error::Shape { .. })), "{ne:?}");
    }
    assert!(matches!(ctx.input("x", DType::Q4_0, [33, 2]), Err(Error::Shape { .. })), "half a block");
    assert!(ctx.input("x", DType::Q4_0, [64, 2]).is_ok(), "whole blocks");
}

#[test]
fn h04_set_refuses_data_out_of_bounds() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let graph = ctx.graph([ctx.relu(x).unwrap()]).unwrap();
    let mut sched = cpu();
    // Fills the memory of the later allocation with other values.
    sched.alloc(&graph).unwrap().set(x, &[9.0_f32; 4]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    for (offset, n) in [(4, 1), (3, 2), (usize::MAX, 4), (usize::MAX - 1, 1), (usize::MAX / 4, 4)] {
        let result = run.set_at(x, offset, &vec![1.0_f32; n]);
        assert!(matches!(result, Err(Error::Range { .. })), "{offset} {n}");
    }
    assert!(matches!(run.set(x, &[0.0_f32; 5]), Err(Error::Length { .. })));
    assert!(matches!(run.set(x, &[0.0_f32; 3]), Err(Error::Length { .. })));
    assert!(matches!(run.set(x, &[0_i32; 4]), Err(Error::ElementType { .. })));
    assert!(matches!(run.set_bytes(x, &[0; 17]), Err(Error::Length { .. })));
    run.set_at(x, 3, &[7.0_f32]).unwrap();
    assert_eq!(run.get::<f32>(x).unwrap(), [0.0, 0.0, 0.0, 7.0], "what was never set is zero");
}

#[test]
fn h06_context_grows_beyond_its_first_pool() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [3]).unwrap();
    let y = chain(&ctx, x, 20_000);
    let graph = ctx.graph([y]).unwrap();
    assert_eq!(graph.n_nodes(), 20_000);
    assert_eq!(graph.nodes().last(), Some(y));
}

#[test]
fn h06_graph_has_room_for_more_leaves_than_nodes() {
    let ctx = Context::new();
    let inputs: Vec<_> = (0..200).map(|i| ctx.input(&format!("x{i}"), DType::F32, [2]).unwrap()).collect();
    let y = ctx.add(inputs[0], inputs[1]).unwrap();
    let outputs: Vec<_> = inputs.iter().copied().chain([y]).collect();
    let graph = ctx.graph(&outputs).unwrap();
    let mut sched = cpu();
    let mut run = sched.alloc(&graph).unwrap();
    for (i, &x) in inputs.iter().enumerate() {
        run.set(x, &[i as f32; 2]).unwrap();
    }
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [1.0, 1.0]);
    assert_eq!(run.get::<f32>(inputs[199]).unwrap(), [199.0, 199.0]);
}

#[test]
fn h20_compute_refuses_inputs_without_values() {
    let ctx = Context::new();
    let (a, b) = (ctx.input("a", DType::F32, [4]).unwrap(), ctx.input("b", DType::F32, [4]).unwrap());
    let y = ctx.add(a, b).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = cpu();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(a, &[1.0_f32; 4]).unwrap();
    let message = run.compute().unwrap_err().to_string();
    assert!(message.contains("`b` f32 [4, 1, 1, 1]"), "{message}");
    assert!(matches!(run.get::<f32>(b), Err(Error::InputNotSet { .. })));
    run.set(b, &[2.0_f32; 4]).unwrap();
    assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })));
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [3.0; 4]);
}

#[test]
fn h21_sched_works_after_out_of_memory() {
    let ctx = Context::new();
    let huge = ctx.input("huge", DType::F32, [1 << 30, 1 << 16]).unwrap();
    let huge = ctx.graph([ctx.relu(huge).unwrap()]).unwrap();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.relu(x).unwrap();
    let small = ctx.graph([y]).unwrap();
    let mut sched = cpu();
    for _ in 0..2 {
        let message = sched.alloc(&huge).unwrap_err().to_string();
        assert!(message.contains("\n  ggml: ") && !message.contains(" 0 bytes"), "{message}");
        assert!(matches!(sched.alloc(&huge), Err(Error::OutOfMemory { .. })));
        assert!(matches!(sched.reserve(&huge), Err(Error::OutOfMemory { .. })));
        let mut run = sched.alloc(&small).unwrap();
        run.set(x, &[1.0_f32, -1.0, 2.0, -2.0]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [1.0, 0.0, 2.0, 0.0]);
    }
    let mut backend = Backend::cpu().unwrap();
    let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    assert!(matches!(allocator.alloc(&huge, &mut backend), Err(Error::OutOfMemory { .. })));
    assert!(allocator.alloc(&small, &mut backend).is_ok());
}

/// Two backends of one device share a buffer. If a larger one can't be allocated, ggml's allocator forgets that it
/// freed the buffer for the first backend, and frees it again for the second.
#[test]
fn h21_buffer_shared_by_two_backends_is_freed_once() {
    let backends = Sched::builder().backend(Backend::cpu().unwrap()).backend(Backend::cpu().unwrap());
    let mut sched = backends.build().unwrap();
    let ctx = Context::new();
    let graph = |ne: [i64; 2]| {
        let x = ctx.input("x", DType::F32, ne).unwrap();
        ctx.graph([ctx.relu(x).unwrap()]).unwrap()
    };
    let (small, huge) = (graph([1 << 20, 1]), graph([1 << 30, 1 << 16]));
    sched.reserve(&small).unwrap();
    assert!(matches!(sched.alloc(&huge), Err(Error::OutOfMemory { .. })));
    drop(sched);
}

/// Two graphs with equal numbers and sizes of nodes and leaves: ggml would reuse the first plan, which overwrites a
/// value that the second graph still needs.
#[test]
fn h23_sched_plan_is_not_reused_for_another_topology() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [256]).unwrap();
    let first = ctx.scale(x, 3.0).unwrap();
    // The first value is not used again.
    let a = ctx.add(chain(&ctx, first, 4), x).unwrap();
    // The first value is used again at the end.
    let b = ctx.add(chain(&ctx, first, 4), first).unwrap();
    let (ga, gb) = (ctx.graph([a]).unwrap(), ctx.graph([b]).unwrap());
    assert_eq!(ga.n_nodes(), gb.n_nodes());

    let data: Vec<f32> = (0..256).map(|i| i as f32 - 100.0).collect();
    let want_a: Vec<f32> = data.iter().map(|v| (3.0 * v).abs() + v).collect();
    let want_b: Vec<f32> = data.iter().map(|v| (3.0 * v).abs() + 3.0 * v).collect();
    let mut sched = cpu();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut backend = Backend::cpu().unwrap();
    for _ in 0..2 {
        for (graph, y, want) in [(&ga, a, &want_a), (&gb, b, &want_b)] {
            let mut run = sched.alloc(graph).unwrap();
            run.set(x, &data).unwrap();
            run.compute().unwrap();
            assert_eq!(run.get::<f32>(y).unwrap(), *want);
            drop(run);
            let mut run = allocator.alloc(graph, &mut backend).unwrap();
            run.set(x, &data).unwrap();
            run.compute().unwrap();
            assert_eq!(run.get::<f32>(y).unwrap(), *want);
        }
    }
}

/// The same number of tensors, but another one is kept: a plan that frees it would be wrong.
#[test]
fn h23_sched_plan_is_not_reused_for_other_outputs() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64]).unwrap();
    let mut sched = cpu();
    let mut step = |keep: usize| {
        let kept = ctx.output(chain(&ctx, x, keep)).unwrap();
        // Continues the pattern of `chain`.
        let end = (keep..6).fold(kept, |t, i| if i % 2 == 0 { ctx.neg(t).unwrap() } else { ctx.abs(t).unwrap() });
        let graph = ctx.graph([end]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[-2.0_f32; 64]).unwrap();
        run.compute().unwrap();
        (run.get::<f32>(kept).unwrap(), run.get::<f32>(end).unwrap())
    };
    // `chain` alternates `neg` and `abs`.
    let after = |value: f32, n: usize| (0..n).fold(value, |v, i| if i % 2 == 0 { -v } else { v.abs() });
    for keep in [1, 3, 2, 5] {
        let (kept, end) = step(keep);
        assert_eq!(kept, [after(-2.0, keep); 64], "{keep}");
        assert_eq!(end, [after(-2.0, 6); 64], "{keep}");
    }
}

#[test]
fn h24_allocations_of_the_same_tensors_have_separate_memory() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let (a, b) = (ctx.relu(x).unwrap(), ctx.neg(x).unwrap());
    let (ga, gb) = (ctx.graph([a]).unwrap(), ctx.graph([b]).unwrap());
    let (mut one, mut two) = (cpu(), cpu());
    let mut first = one.alloc(&ga).unwrap();
    first.set(x, &[-1.0_f32, 2.0, -3.0, 4.0]).unwrap();
    let mut second = two.alloc(&gb).unwrap();
    second.set(x, &[5.0_f32, 6.0, 7.0, 8.0]).unwrap();
    first.compute().unwrap();
    second.compute().unwrap();
    assert_eq!(first.get::<f32>(a).unwrap(), [0.0, 2.0, 0.0, 4.0]);
    assert_eq!(second.get::<f32>(b).unwrap(), [-5.0, -6.0, -7.0, -8.0]);
    drop(second);
    // A view built in between must not keep the address of memory that is freed below.
    let view = ctx.view(a, [2], [8, 8, 8], 4).unwrap();
    drop(first);
    let gv = ctx.graph([view]).unwrap();
    let mut run = two.alloc(&gv).unwrap();
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(view).unwrap(), [2.0, 3.0]);
}

#[test]
fn h24_forgotten_allocation_does_not_disturb_others() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.relu(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = cpu();
    std::mem::forget(sched.alloc(&graph).unwrap());
    let relu_of = |sched: &mut Sched| {
        let mut run = sched.alloc(&graph).unwrap();
        assert!(matches!(run.compute(), Err(Error::InputNotSet { .. })), "what was set is forgotten, too");
        run.set(x, &[-1.0_f32, 2.0, -3.0, 4.0]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [0.0, 2.0, 0.0, 4.0]);
    };
    relu_of(&mut sched);
    let z = ctx.input("z", DType::F32, [4]).unwrap();
    let w = ctx.neg(z).unwrap();
    let other = ctx.graph([w]).unwrap();
    let mut run = sched.alloc(&other).unwrap();
    assert!(matches!(run.set(x, &[0.0_f32; 4]), Err(Error::NotPart { .. })));
    run.set(z, &[1.0_f32; 4]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(w).unwrap(), [-1.0; 4]);
    drop(run);
    drop(sched);
    relu_of(&mut cpu());
    assert!(cpu().alloc(&ctx.graph([ctx.abs(y).unwrap()]).unwrap()).is_ok());
}

/// The scheduler keeps pointers to the lists of the allocated graph, which may belong to another graph by now.
#[test]
fn h24_rebuilt_graph_is_computed_by_its_own_lists() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let (y, long) = (ctx.neg(x).unwrap(), chain(&ctx, x, 400));
    let mut sched = cpu();
    let compute = |sched: &mut Sched, graph: &Graph<'_>| {
        let mut run = sched.alloc(graph).unwrap();
        run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [-1.0, -2.0, -3.0, -4.0]);
    };
    let mut held = Vec::new();
    for _ in 0..8 {
        compute(&mut sched, &ctx.graph([y]).unwrap());
        // These graphs reuse the free lists and overwrite or grow them.
        held.push(ctx.graph([ctx.abs(x).unwrap()]).unwrap());
        compute(&mut sched, &ctx.graph([y]).unwrap());
        held.push(ctx.graph([long]).unwrap());
        compute(&mut sched, &ctx.graph([y]).unwrap());
    }
    assert_eq!(sched.plans(), 1, "the same graph each time");
}

/// Tensors that get their old placement back may be views of weights that were replaced at the same addresses.
#[test]
fn h24_reused_views_use_the_current_weights() {
    let buft = Device::cpu().unwrap().buffer_type();
    let place = |name: &str, n: usize| {
        let mut builder = WeightsBuilder::new();
        builder.tensor(name, DType::F32, [32, 4]).unwrap();
        let state = builder.place_state(buft).unwrap();
        state.set(name, &vec![n as f32; 128]).unwrap();
        state
    };
    let (mut ctx, mut sched, mut others) = (Context::new(), cpu(), Vec::new());
    for n in 0..200 {
        ctx.reset();
        let state = place("w", n);
        let x = ctx.input("x", DType::F32, [32]).unwrap();
        let part = ctx.view(state.tensor("w").unwrap(), [32, 2], [128, 256, 256], 0).unwrap();
        let y = ctx.mul_mat(part, x).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[1.0_f32; 32]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [32.0 * n as f32; 2]);
        assert_eq!(run.get::<f32>(part).unwrap(), [n as f32; 64]);
        drop(run);
        drop(graph);
        drop(state);
        // Occupies the freed memory of the state, so that the next state has another address.
        if n % 3 == 0 {
            others.push(place("another", n));
        }
    }
}

#[test]
fn h26_set_threads_refuses_counts_out_of_range() {
    let mut backend = Backend::cpu().unwrap();
    for n in [0, Backend::MAX_THREADS + 1, usize::MAX] {
        assert!(matches!(backend.set_threads(n), Err(Error::Param { .. })), "{n}");
    }
    for n in [1, 3, 2] {
        backend.set_threads(n).unwrap();
        assert_eq!(backend.threads(), n);
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [64, 64]).unwrap();
        let y = ctx.mul_mat(x, x).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        let mut run = allocator.alloc(&graph, &mut backend).unwrap();
        run.set(x, &[1.0_f32; 64 * 64]).unwrap();
        run.compute().unwrap();
        assert!(run.get::<f32>(y).unwrap().iter().all(|&v| v == 64.0));
    }
}

#[test]
fn h28_failed_place_leaves_nothing_behind() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("small", DType::F32, [4]).unwrap();
    builder.tensor("huge", DType::F32, [1 << 30, 1 << 16]).unwrap();
    let result = builder.place(Device::cpu().unwrap().buffer_type());
    assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{result:?}");
}

#[test]
fn h35_deep_graph_does_not_overflow_the_stack() {
    let deep = std::thread::Builder::new().stack_size(256 << 10).spawn(|| {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [1]).unwrap();
        let y = chain(&ctx, x, 100_001);
        let graph = ctx.graph([y]).unwrap();
        let mut backend = Backend::cpu().unwrap();
        backend.set_threads(1).unwrap();
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        let mut run = allocator.alloc(&graph, &mut backend).unwrap();
        run.set(x, &[5.0_f32]).unwrap();
        run.compute().unwrap();
        run.get::<f32>(y).unwrap()
    });
    assert_eq!(deep.unwrap().join().unwrap(), [-5.0]);
}
