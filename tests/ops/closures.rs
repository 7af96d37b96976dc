//! Closures in a computation: their panics, lifetimes, and what they can't reach.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Mutex};
use std::thread;

use ggml::prelude::*;
use ggml::{
    GraphAllocator,
    ops::{CustomOp, CustomOptions, Operands, RowsMut},
};

use crate::custom::{sched, tasks};
use crate::support::{Array, Lab, ne, refused};

/// The message of a panic.
fn said(panic: Result<(), Box<dyn std::any::Any + Send>>) -> &'static str {
    panic.unwrap_err().downcast_ref::<&str>().copied().unwrap_or("something else")
}

#[test]
fn custom_panic_resumes_from_compute() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2, 8]).unwrap();
    // Panics where the last row is 13, which is in the last thread's task.
    let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), |out, x| {
        for (i, row) in out {
            row.copy_from_slice(x.row(i));
            assert!(row[0] < 13.0, "thirteen");
        }
    });
    let z = ctx.relu(y.unwrap()).unwrap();
    let graph = ctx.graph([z]).unwrap();
    let (good, mut bad) = ([1.0_f32; 16], [1.0_f32; 16]);
    bad[14] = 13.0;
    let mut sched = sched(2);
    let mut run = sched.alloc(&graph).unwrap();
    for _ in 0..2 {
        run.set(x, &good).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(z).unwrap(), good);
        run.set(x, &bad).unwrap();
        assert_eq!(said(catch_unwind(AssertUnwindSafe(|| run.compute().unwrap()))), "thirteen");
        refused!(NotComputed, run.get::<f32>(z), "half of it is there");
        let observed = catch_unwind(AssertUnwindSafe(|| {
            run.compute_with(|_| false, |_| std::ops::ControlFlow::Continue(())).unwrap();
        }));
        assert_eq!(said(observed), "thirteen");
        refused!(NotComputed, run.get::<f32>(z));
        // The observer aborts after the closure panicked. The panic takes precedence.
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            let _stopped = run.compute_with(|_| true, |_| std::ops::ControlFlow::Break(()));
        }));
        assert_eq!(said(stopped), "thirteen");
    }
    drop(run);
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut backend = Backend::cpu().unwrap();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &bad).unwrap();
    assert_eq!(said(catch_unwind(AssertUnwindSafe(|| memory.compute().unwrap()))), "thirteen");
    refused!(NotComputed, memory.get::<f32>(z));
    memory.set(x, &good).unwrap();
    memory.compute().unwrap();
    assert_eq!(memory.get::<f32>(z).unwrap(), good);
}

/// A panic's payload may be of any type, and each thread may have one.
#[test]
fn custom_panics_on_several_threads_resume_as_one() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic_any("dropped");
            }
        }
    }
    let ctx = Context::new();
    let both = Arc::new(std::sync::Barrier::new(2));
    let y = ctx.custom::<f32>(&[], [1, 2], CustomOptions::new(), move |_, _| {
        both.wait();
        panic_any(Bomb);
    });
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let graph = ctx.graph([y.unwrap(), ctx.relu(x).unwrap()]).unwrap();
    let mut sched = sched(2);
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[0.0_f32; 8]).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| run.compute().unwrap())).unwrap_err();
    // The other payload was leaked too.
    Box::leak(panic.downcast::<Bomb>().unwrap());
}

/// Two graphs that differ only in their closures share one plan; and addresses are reused.
#[test]
fn custom_closures_belong_to_their_graph() {
    let mut sched = sched(2);
    let mut ctx = Context::new();
    for n in 0..4_u8 {
        ctx.reset();
        let y = ctx.custom::<f32>(&[], [3, 4], CustomOptions::new(), move |out, _| {
            out.for_each(|(_, row)| row.fill(n.into()));
        });
        let y = y.unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [f32::from(n); 12]);
    }
}

#[test]
fn custom_closures_live_as_long_as_their_context() {
    let token = Arc::new(());
    let mut ctx = Context::new();
    let operation = |ctx: &Context| {
        let token = Arc::clone(&token);
        let f = move |_: RowsMut<'_, f32>, _: Operands<'_>| assert!(Arc::strong_count(&token) > 1, "dropped");
        ctx.custom::<f32>(&[], [1], CustomOptions::new(), f).map(drop)
    };
    (0..100).for_each(|_| operation(&ctx).unwrap());
    assert_eq!(Arc::strong_count(&token), 101);
    ctx.reset();
    assert_eq!(Arc::strong_count(&token), 1);
    operation(&ctx).unwrap();
    drop(ctx);
    assert_eq!(Arc::strong_count(&token), 1);
    // A closure whose operation was refused.
    let ctx = Context::new();
    let keep = Arc::clone(&token);
    refused!(Param, ctx.custom::<f32>(&[], [1], tasks(0), move |_, _| drop(Arc::clone(&keep))));
    assert_eq!(Arc::strong_count(&token), 1);
}

thread_local! {
    static CACHE: State = {
        let mut builder = WeightsBuilder::new();
        builder.tensor("x", DType::F32, [4]).unwrap();
        builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap()
    };
    static LEAKED: Cell<Option<(&'static Context, Tensor<'static>)>> = const { Cell::new(None) };
}

/// The computing thread also runs the closure, and can reach the computed tensors in ways that no type prevents.
#[test]
fn custom_closures_cannot_call_ggml() {
    let ctx: &'static Context = Box::leak(Box::default());
    let t = ctx.input("t", DType::F32, [1]).unwrap();
    LEAKED.set(Some((ctx, t)));
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&refusals);
    CACHE.with(|state| {
        let x = state.tensor("x").unwrap();
        let y = ctx.custom::<f32>(&[x, t], [1, 2], CustomOptions::new(), move |_, operands| {
            // The other thread has neither of the two.
            let Some((ctx, t)) = LEAKED.get() else { return };
            let before = operands.rows::<f32>(0).row([0, 0, 0]);
            let inner = Context::new();
            let mut errors = vec![
                CACHE.with(|s| s.set("x", &[1.0_f32; 4])).unwrap_err(),
                CACHE.with(|s| s.tensor("x").unwrap().read::<f32>()).map(drop).unwrap_err(),
                CACHE.with(|s| s.read_bytes("x")).map(drop).unwrap_err(),
                inner.input("x", DType::F32, [1]).map(drop).unwrap_err(),
                Device::all().map(drop).unwrap_err(),
                Backend::cpu().map(drop).unwrap_err(),
            ];
            errors.push(t.named("other").map(drop).unwrap_err());
            errors.push(ctx.output(t).map(drop).unwrap_err());
            errors.push(ctx.graph([t]).map(drop).unwrap_err());
            errors.push(ctx.neg(t).map(drop).unwrap_err());
            assert_eq!(before, [0.0; 4]);
            note.lock().unwrap().extend(errors);
        });
        let y = y.unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut sched = sched(2);
        let mut run = sched.alloc(&graph).unwrap();
        run.set(t, &[0.0_f32]).unwrap();
        run.compute().unwrap();
        let refusals = refusals.lock().unwrap();
        assert_eq!(refusals.len(), 10);
        assert!(refusals.iter().all(|e| matches!(e, Error::Nested { .. })), "{refusals:?}");
        drop(run);
        state.set("x", &[1.0_f32; 4]).unwrap();
    });
}

#[test]
fn custom_closures_may_start_threads_that_call_ggml() {
    let ctx = Context::new();
    let y = ctx.custom::<f32>(&[], [1], CustomOptions::new(), |out, _| {
        let two = thread::spawn(|| {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 1);
            let (x, _) = lab.plain(&Array { ne: ne([1]), data: vec![4.0] });
            lab.run(ctx.sqrt(x).unwrap()).unwrap().data[0]
        });
        let two = two.join().unwrap();
        out.for_each(|(_, row)| row[0] = two as f32);
    });
    let got = Lab::new(&ctx).run(y.unwrap()).unwrap();
    assert_eq!(got.data, [2.0]);
}

/// An operation that adds one, and panics where a number is negative.
fn one_more() -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new(), |out, operands| {
        for (i, row) in out {
            let x = operands.rows::<f32>(0).row(i);
            assert!(x[0] >= 0.0, "negative");
            row.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0);
        }
    })
}

/// Several uses at once, in several contexts and threads: a panic belongs to the computation in which it happened.
#[test]
fn custom_op_is_used_by_many_graphs() {
    let op = one_more();
    let compute = |ctx: &Context, x: f32| -> f32 {
        let y = (0..5).fold(ctx.arange(x, x + 1.0, 1.0).unwrap(), |t, _| ctx.custom_op(&op, &[t], [1]).unwrap());
        let graph = ctx.graph([y]).unwrap();
        let mut sched = sched(2);
        let mut run = sched.alloc(&graph).unwrap();
        run.compute().unwrap();
        run.get(y).unwrap()[0]
    };
    thread::scope(|scope| {
        for t in 0..3_u8 {
            let compute = &compute;
            scope.spawn(move || {
                let mut ctx = Context::new();
                for i in 0..50_u8 {
                    ctx.reset();
                    let x = f32::from(i % 5) - 1.0;
                    let result = catch_unwind(AssertUnwindSafe(|| compute(&ctx, x)));
                    match result {
                        Ok(y) => assert!(x >= 0.0 && y == x + 5.0, "{x} {y} on thread {t}"),
                        Err(_) => assert!(x < 0.0, "{x} on thread {t}"),
                    }
                }
            });
        }
    });
}

/// Contexts keep what they use, and give it back.
#[test]
fn custom_op_may_be_dropped_before_its_graphs() {
    let (op, ctx) = (one_more(), Context::new());
    let y = ctx.custom_op(&op, &[ctx.arange(1.0, 2.0, 1.0).unwrap()], [1]).unwrap();
    drop(op);
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched(1);
    let mut run = sched.alloc(&graph).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [2.0]);
}
