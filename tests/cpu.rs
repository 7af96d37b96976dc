//! Features that only the CPU has.

#![cfg(test)]
#![allow(clippy::mem_forget, reason = "leaks")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ggml::cpu::{self, Numa};
use ggml::ops::{CustomOptions, Rows, RowsMut};
use ggml::prelude::*;
use ggml::{Error, GraphAllocator, Threads};

fn allocator() -> GraphAllocator {
    GraphAllocator::new(Device::cpu().unwrap().buffer_type())
}

/// A matrix product, whose kernel needs a work buffer.
struct Product {
    weights: Weights,
}

impl Product {
    fn new() -> Self {
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::Q8_0, [32, 4]).unwrap();
        let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
        weights.set_bytes("w", &DType::Q8_0.quantize(&[1.0; 128], 32, None).unwrap()).unwrap();
        Self { weights }
    }

    fn graph<'c>(&'c self, ctx: &'c Context) -> (Tensor<'c>, Tensor<'c>, Graph<'c>) {
        let x = ctx.input("x", DType::F32, [32, 2]).unwrap();
        let y = ctx.neg(ctx.mul_mat(self.weights.tensor("w").unwrap(), x).unwrap()).unwrap();
        (x, y, ctx.graph([y]).unwrap())
    }
}

#[test]
fn plan_computes_repeatedly() {
    let product = Product::new();
    let ctx = Context::new();
    let (x, y, graph) = product.graph(&ctx);
    let mut allocator = allocator();
    for threads in [1, 3] {
        let mut backend = Backend::cpu().unwrap();
        backend.set_threads(Threads::new(threads).with_all(true)).unwrap();
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        let mut plan = memory.plan().unwrap();
        if threads == 1 {
            assert!(matches!(plan.compute(), Err(Error::InputNotSet { .. })));
            assert!(matches!(plan.get::<f32>(y), Err(Error::NotComputed { .. })));
        }
        for k in [1.0_f32, 2.0, 0.5] {
            plan.set(x, &[k; 64]).unwrap();
            plan.compute().unwrap();
            let got = plan.get::<f32>(y).unwrap();
            assert!(got.iter().all(|y| (y + 32.0 * k).abs() < 0.2 * k), "{threads} threads, {k}: {got:?}");
        }
        let planned = plan.get::<f32>(y).unwrap();
        drop(plan);
        assert_eq!(memory.get::<f32>(y).unwrap(), planned, "the result outlives the plan");
        memory.compute().unwrap();
        assert_eq!(memory.get::<f32>(y).unwrap(), planned);
    }
}

#[test]
fn plan_is_cancelled_by_its_abort_closure() {
    let product = Product::new();
    let ctx = Context::new();
    let (x, y, graph) = product.graph(&ctx);
    let stop = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&stop);
    let mut backend = Backend::cpu().unwrap();
    backend.set_abort(move || asked.load(Ordering::Relaxed)).unwrap();
    let mut allocator = allocator();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    let mut plan = memory.plan().unwrap();
    plan.set(x, &[1.0_f32; 64]).unwrap();
    assert!(matches!(plan.compute(), Err(Error::Cancelled)));
    assert!(matches!(plan.get::<f32>(y), Err(Error::NotComputed { .. })));
    stop.store(false, Ordering::Relaxed);
    plan.compute().unwrap();
    plan.get::<f32>(y).unwrap();
}

#[test]
fn plan_resumes_the_panic_of_a_closure() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&fails);
    let y = ctx
        .map_custom1::<f32>(x, CustomOptions::new(), move |_, _| {
            assert!(!now.load(Ordering::Relaxed), "in the closure");
        })
        .unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = allocator();
    let mut backend = Backend::cpu().unwrap();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    let mut plan = memory.plan().unwrap();
    plan.set(x, &[1.0_f32; 4]).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| plan.compute())).is_err());
    assert!(matches!(plan.get::<f32>(y), Err(Error::NotComputed { .. })));
    fails.store(false, Ordering::Relaxed);
    plan.compute().unwrap();
    assert_eq!(plan.get::<f32>(y).unwrap(), [0.0; 4]);
}

#[test]
fn leaked_plan_leaves_everything_usable() {
    let product = Product::new();
    let ctx = Context::new();
    let (x, y, graph) = product.graph(&ctx);
    let mut allocator = allocator();
    let mut backend = Backend::cpu().unwrap();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[1.0_f32; 64]).unwrap();
    std::mem::forget(memory.plan().unwrap());
    drop(memory);
    backend.set_threads(2).unwrap();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[1.0_f32; 64]).unwrap();
    memory.compute().unwrap();
    memory.get::<f32>(y).unwrap();
}

#[test]
fn paused_threads_wake_for_the_next_computation() {
    let product = Product::new();
    let ctx = Context::new();
    let (x, y, graph) = product.graph(&ctx);
    let mut allocator = allocator();
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(Threads::new(3).with_all(true)).unwrap();
    backend.pause_threads().unwrap();
    backend.pause_threads().unwrap();
    let mut compute = |backend: &mut Backend| {
        let mut run = allocator.alloc(&graph, backend).unwrap();
        run.set(x, &[1.0_f32; 64]).unwrap();
        run.compute().unwrap();
        assert!(run.get::<f32>(y).unwrap().iter().all(|y| (y + 32.0).abs() < 0.2));
    };
    for _ in 0..3 {
        compute(&mut backend);
        backend.pause_threads().unwrap();
    }
    let threads = Threads::new(2).with_paused(true).with_all(true);
    backend.set_threads(threads.clone()).unwrap();
    compute(&mut backend);
    backend.pause_threads().unwrap();
    backend.set_threads(threads).unwrap();
    drop(backend); // with threads that were never woken
}

/// A thread that waits for another's operation sleeps after a while, and leaves its processor to others.
#[cfg(all(target_os = "linux", not(any(feature = "openmp", feature = "system"))))]
#[test]
fn threads_that_wait_long_for_each_other_sleep() {
    const BUSY: Duration = Duration::from_millis(400);
    /// The nanoseconds for which the calling thread has had a processor.
    fn used() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }
    let second_thread = Arc::new(Mutex::new(Vec::new()));
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [1, 2]).unwrap();
    // Each thread computes a row.
    let look = |y| {
        let second_thread = Arc::clone(&second_thread);
        let look = move |out: RowsMut<'_, f32>, x: Rows<'_, f32>| {
            for (i, row) in out {
                row.copy_from_slice(x.row(i));
                if i[0] == 1 {
                    second_thread.lock().unwrap().push((thread::current().id(), used()));
                }
            }
        };
        ctx.map_custom1::<f32>(y, CustomOptions::new().with_n_tasks(2), look).unwrap()
    };
    let first_thread_alone = |out: RowsMut<'_, f32>, x: Rows<'_, f32>| {
        thread::sleep(BUSY);
        out.for_each(|(i, row)| row.copy_from_slice(x.row(i)));
    };
    let y = ctx.map_custom1::<f32>(look(x), CustomOptions::new().with_n_tasks(1), first_thread_alone).unwrap();
    let graph = ctx.graph([look(y)]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(2).unwrap();
    let mut allocator = allocator();
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32, 2.0]).unwrap();
    run.compute().unwrap();
    let [(before, started), (after, ended)] = second_thread.lock().unwrap()[..] else { panic!("two looks") };
    assert_eq!(before, after, "one thread");
    let used = Duration::from_nanos(ended - started);
    assert!(used < BUSY / 4, "a thread that waited for {BUSY:?} used its processor for {used:?}");
}

#[cfg(feature = "rpc")]
#[test]
fn cpu_settings_are_refused_by_other_devices() {
    use ggml::rpc;
    let server = rpc::Server::builder().start().unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut remote = connection.devices().first().unwrap().init().unwrap();
    let refused = |result: ggml::Result<()>| {
        assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
    };
    refused(remote.pause_threads());
    refused(remote.set_use_ref(true));
    let ctx = Context::new();
    let graph = ctx.graph([ctx.neg(ctx.input("x", DType::F32, [4]).unwrap()).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(remote.device().buffer_type());
    refused(allocator.alloc(&graph, &mut remote).unwrap().plan().map(drop));
    // A CPU backend can't use the server's memory.
    refused(allocator.alloc(&graph, &mut Backend::cpu().unwrap()).map(drop));
    let backends = || Sched::builder().backend(Backend::cpu().unwrap());
    refused(backends().backend(Backend::cpu().unwrap()).build().unwrap().alloc(&graph).unwrap().plan().map(drop));
    assert!(backends().build().unwrap().alloc(&graph).unwrap().plan().is_ok(), "a scheduler with one CPU");
}

#[test]
fn cpu_features_equal_the_features_of_the_registry() {
    let features = cpu::features().unwrap();
    let listed = Device::cpu().unwrap().registry().unwrap().features().unwrap();
    let shown = features.to_string();
    let shown: Vec<_> = shown.split(' ').map(|word| word.split('=').next().unwrap()).collect();
    for (name, _) in &listed {
        assert!(shown.contains(&name.as_str()), "{name} in {shown:?}");
    }
    assert_eq!(shown.len(), listed.len(), "{shown:?} {listed:?}");
    assert!(features.others.iter().any(|name| name == "REPACK"), "{features:?}");
    for name in &features.others {
        assert!(!name.contains("AVX") && !name.contains("SVE"), "{name} has a field");
    }
    if cfg!(target_arch = "x86_64") {
        for (feature, there) in [("avx", features.avx), ("avx2", features.avx2), ("fma", features.fma)] {
            assert_eq!(ggml::sys::CPU_FEATURES.contains(&feature), there, "{feature}");
        }
        assert!(!features.neon && features.sve_bytes == 0 && features.riscv_v_bytes == 0);
    }
}

/// The successful case is in `tests/numa.rs`.
#[test]
fn numa_init_is_refused_after_a_backend_was_made() {
    let _backend = Backend::cpu().unwrap();
    for strategy in [Numa::Distribute, Numa::Isolate, Numa::Numactl] {
        let refused = cpu::numa_init(strategy);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
    cpu::is_numa().unwrap();
}
