//! Backends: threads and cancelled computations.

#![cfg(test)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ggml::prelude::*;
use ggml::{Event, GraphAllocator, Priority, Registry, Threads};

/// A chain of operations, each long enough for a cancellation in between.
fn chain(ctx: &Context, length: usize) -> (Tensor<'_>, Tensor<'_>) {
    let x = ctx.input("x", DType::F32, [64, 64]).unwrap();
    let y = (0..length).fold(x, |y, _| ctx.add(y, x).unwrap());
    (x, y)
}

#[test]
fn set_abort_stops_the_computation() {
    let ctx = Context::new();
    let (x, y) = chain(&ctx, 20);
    let graph = ctx.graph([y]).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let mut backend = Backend::cpu().unwrap();
    backend.set_abort(move || seen.fetch_add(1, Ordering::Relaxed) == 7).unwrap();
    let mut sched = Sched::builder().backend(backend).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 64 * 64]).unwrap();
    assert!(matches!(run.compute(), Err(Error::Cancelled)), "stopped at the eighth operation");
    assert_eq!(asked.load(Ordering::Relaxed), 8, "asked before each operation");
    assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })), "what was stopped has no result");
    run.compute().unwrap();
    assert!(run.get::<f32>(y).unwrap().iter().all(|&v| v.to_bits() == 21.0_f32.to_bits()), "it goes on being usable");
}

#[test]
fn set_abort_deadline_ends_a_computation() {
    let ctx = Context::new();
    let (x, y) = chain(&ctx, 20);
    let graph = ctx.graph([y]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    let later = Duration::from_secs(3600);
    for (deadline, over) in [(Some(Instant::now()), true), (Some(Instant::now() + later), false), (None, false)] {
        backend.set_deadline(deadline).unwrap();
        let mut run = allocator.alloc(&graph, &mut backend).unwrap();
        run.set(x, &[1.0_f32; 64 * 64]).unwrap();
        let result = run.compute();
        if over {
            assert!(matches!(result, Err(Error::Cancelled)), "the deadline is over: {result:?}");
        } else {
            result.unwrap();
            assert_eq!(run.get::<f32>(y).unwrap().first(), Some(&21.0));
        }
    }
}

#[test]
fn set_abort_panic_resumes_from_compute() {
    let ctx = Context::new();
    let (x, y) = chain(&ctx, 3);
    let graph = ctx.graph([y]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    let mut first = true;
    backend
        .set_abort(move || {
            assert!(!std::mem::take(&mut first), "asked and answered");
            false
        })
        .unwrap();
    let mut sched = Sched::builder().backend(backend).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 64 * 64]).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| run.compute())).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"asked and answered"));
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap().first(), Some(&4.0));
}

#[test]
fn set_threads_accepts_any_settings() {
    let ctx = Context::new();
    let (x, y) = chain(&ctx, 3);
    let graph = ctx.graph([y]).unwrap();
    let eager = Threads::new(2).with_priority(Priority::Normal).with_poll(100).with_all(true);
    let lazy = Threads::new(2).with_priority(Priority::Low).with_poll(0).with_all(true);
    for threads in [Threads::new(1), eager, lazy] {
        let mut backend = Backend::cpu().unwrap();
        backend.set_threads(threads.clone()).unwrap();
        assert_eq!(backend.threads(), threads.count);
        let mut sched = Sched::builder().backend(backend).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[1.0_f32; 64 * 64]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap().first(), Some(&4.0), "{threads:?}");
    }
}

#[test]
fn backend_from_spec_parses_name_and_parameters() {
    for spec in ["CPU", "cpu", "CPU:", "cpu:anything"] {
        assert_eq!(Backend::from_spec(spec).unwrap().name(), "CPU", "{spec}");
    }
    for spec in ["", ":", "CPUX", "CP", "Ünknown:1", "CPU\0"] {
        assert!(Backend::from_spec(spec).is_err(), "{spec:?}");
    }
    assert!(matches!(Backend::from_spec("CPU:a\0b"), Err(Error::Param { .. })), "a NUL among the parameters");
}

/// The CPU reports its build options; the expected list is that of this build.
#[test]
fn registry_lists_cpu_features() {
    let features = Registry::by_name("cpu").unwrap().features().unwrap();
    assert!(features.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()), "{features:?}");
    for feature in ggml::sys::CPU_FEATURES.iter().filter(|f| **f == "avx2" || **f == "fma") {
        assert!(features.iter().any(|(name, _)| name.eq_ignore_ascii_case(feature)), "{feature} in {features:?}");
    }
    assert!(matches!(Registry::by_name("none"), Err(Error::NoSuch { .. })), "there is no such registry");
}

/// H33: the CPU has no events, so it can't be given another device's event either.
#[test]
fn h33_event_new_refuses_a_device_without_events() {
    assert!(matches!(Event::new(Device::cpu().unwrap()), Err(Error::Unsupported { .. })), "the CPU has no events");
}
