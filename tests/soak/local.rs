//! What needs no other process.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use ggml::prelude::*;
use ggml::{GraphAllocator, Threads, ops::CustomOptions};

/// Takes lines, and throws them away.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        drop(record.args().to_string());
    }

    fn flush(&self) {}
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Logger).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// A bit of everything.
pub(crate) fn round(n: u64) {
    let n = usize::try_from(n).unwrap();
    install();
    contexts();
    schedulers(n);
    backends(n);
    failures();
    states();
    logs();
    panics();
}

/// Numbers that are computed here and there.
const DATA: [f32; 8] = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0];

/// Contexts of different sizes, with closures, of which some are used again.
fn contexts() {
    let mut ctx = Context::new();
    for length in [1, 40, 3000] {
        let mut y = ctx.input("x", DType::F32, [8]).unwrap();
        for _ in 0..length {
            y = ctx.neg(y).unwrap();
        }
        let captured = Box::new([0_u8; 100]);
        let y = ctx
            .map_custom1::<f32>(y, CustomOptions::new(), move |out, x| {
                for (i, row) in out {
                    row.copy_from_slice(x.row(i));
                    assert_eq!(captured.len(), 100);
                }
            })
            .unwrap();
        assert_eq!(ctx.graph([y]).unwrap().n_nodes(), length + 1);
        ctx.reset();
    }
}

/// Schedulers over one backend and two, for graphs of several sizes.
fn schedulers(n: usize) {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let mut y = x;
    for _ in 0..[2, 200, 2000][n % 3] {
        y = ctx.neg(y).unwrap();
    }
    let graph = ctx.graph([y]).unwrap();
    for count in [1, 2] {
        let builder = (0..count).fold(Sched::builder(), |b, _| b.backend(backend(1)));
        let mut sched = builder.parallel(n.is_multiple_of(2)).build().unwrap();
        for _ in 0..2 {
            let mut run = sched.alloc(&graph).unwrap();
            run.set(x, &DATA).unwrap();
            run.compute().unwrap();
            let seen = run.compute_with(|t| t == y, |_| ControlFlow::Continue(()));
            seen.unwrap();
            assert_eq!(run.get::<f32>(y).unwrap(), DATA);
        }
    }
}

fn backend(threads: usize) -> Backend {
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(Threads::new(threads).with_all(true)).unwrap();
    backend
}

/// Backends with threads, which may be stopped.
fn backends(n: usize) {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let y = ctx.sqr(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut backend = backend(1 + n % 4);
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &DATA).unwrap();
    run.compute().unwrap();
    drop(run);
    backend.set_threads(Threads::new(2).with_all(true)).unwrap();
    let captured = vec![0_u8; 1000];
    backend.set_abort(move || !captured.is_empty()).unwrap();
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &DATA).unwrap();
    assert!(run.compute().is_err(), "it was stopped");
    drop(run);
    backend.clear_abort().unwrap();
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &DATA).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), DATA.map(|v| v * v));
    drop(run.plan().unwrap());
}

/// Memory that can't be had.
fn failures() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [1 << 25, 1 << 21]).unwrap();
    let huge = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut sched = Sched::builder().backend(backend(1)).backend(backend(1)).build().unwrap();
    let mut backend = backend(1);
    for _ in 0..2 {
        assert!(matches!(allocator.alloc(&huge, &mut backend), Err(Error::OutOfMemory { .. })), "256 TiB");
        assert!(matches!(sched.alloc(&huge), Err(Error::OutOfMemory { .. })), "256 TiB");
    }
    let mut builder = WeightsBuilder::new();
    builder.tensor("huge", DType::F32, [1 << 25, 1 << 21]).unwrap();
    assert!(builder.place(Device::cpu().unwrap().buffer_type()).is_err(), "256 TiB");
    assert!(ctx.input("odd", DType::Q4_0, [33]).is_err(), "half a block");
}

/// Memory of leaves.
fn states() {
    let builder = || {
        let mut builder = WeightsBuilder::new();
        builder.tensor("a", DType::F32, [1 << 12]).unwrap();
        builder.tensor("b", DType::F16, [8]).unwrap();
        builder
    };
    let memory = Device::cpu().unwrap().buffer_type();
    let state = builder().place_state(memory).unwrap();
    state.fill_bytes("a", 1).unwrap();
    let mut weights = builder().place(memory).unwrap();
    weights.fill_bytes("a", 2).unwrap();
    state.copy("a", weights.tensor("a").unwrap()).unwrap();
    let mut read = [0.0_f32; 1 << 12];
    let mut backend = backend(1);
    backend.transfers(|queue| queue.get(weights.tensor("a").unwrap(), &mut read)).unwrap();
    assert_eq!(bytemuck::bytes_of(&read[0]), [2; 4]);
}

/// Threads that log a few lines, and end.
fn logs() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let ctx = Context::new();
                let y = ctx.neg(ctx.input("x", DType::F32, [8]).unwrap()).unwrap();
                ctx.graph([y]).unwrap().print().unwrap();
                failures();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Closures that panic.
fn panics() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), |_, _| resume_unwind(Box::new([0_u8; 1000]))).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = Sched::builder().backend(backend(2)).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &DATA).unwrap();
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| run.compute())).is_err(), "a panic was lost");
    }
}
