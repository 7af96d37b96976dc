//! A logger that panics, in its own test binary, because the logger is global.

#![cfg(test)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use ggml::GraphAllocator;
use ggml::prelude::*;

static PANICS: AtomicBool = AtomicBool::new(false);

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        assert!(!PANICS.load(Ordering::Relaxed), "logging {}", record.args());
    }

    fn flush(&self) {}
}

#[test]
fn logger_panic_resumes_from_a_public_call() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let ctx = Context::new();
    let graph = |ne: [i64; 2]| {
        let x = ctx.input("x", DType::F32, ne).unwrap();
        ctx.graph([ctx.relu(x).unwrap()]).unwrap()
    };
    // ggml logs an error if it can't allocate the memory.
    let (small, huge) = (graph([16, 1]), graph([1 << 30, 1 << 13]));
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    sched.reserve(&small).unwrap();
    allocator.reserve(&small).unwrap();

    PANICS.store(true, Ordering::Relaxed);
    let panics = [
        catch_unwind(AssertUnwindSafe(|| sched.reserve(&huge))).unwrap_err(),
        catch_unwind(AssertUnwindSafe(|| allocator.reserve(&huge))).unwrap_err(),
    ];
    PANICS.store(false, Ordering::Relaxed);
    for panic in panics {
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.starts_with("logging "), "{message}");
    }

    // The panic was raised after ggml's results were recorded.
    assert!(sched.reserve(&small).is_ok(), "the scheduler");
    assert!(allocator.reserve(&small).is_ok(), "the allocator");
}
