//! A logger that panics, in its own test binary, because the logger is global.

#![cfg(test)]

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes};
use ggml::prelude::*;
use ggml::{GraphAllocator, Registry};

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

/// Installs the logger, which one test at a time tells to panic.
fn install() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    ONCE.call_once(|| log::set_logger(&Logger).unwrap());
    log::set_max_level(log::LevelFilter::Trace);
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn logger_panic_resumes_from_a_public_call() {
    let _alone = install();
    let ctx = Context::new();
    let graph = |ne: [i64; 2]| {
        let x = ctx.input("x", DType::F32, ne).unwrap();
        ctx.graph([ctx.relu(x).unwrap()]).unwrap()
    };
    // ggml logs an error if it can't allocate the memory.
    let (small, huge) = (graph([16, 1]), graph([1 << 30, 1 << 16]));
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

/// Fails as it is told, in host memory.
struct Failing;

static FAILS: AtomicBool = AtomicBool::new(false);

impl Driver for Failing {
    type Buffer = NoBuffer;
    type Stream = Self;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new("Failing0".into(), DeviceType::Accelerator)
    }

    fn supports(&self, _: &Node<'_, Self>) -> bool {
        true
    }

    fn stream(&self, _: &str) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl DriverStream<Self> for Failing {
    fn compute(&mut self, nodes: Nodes<'_, Self>) -> Result<(), Failure> {
        if FAILS.load(Ordering::Relaxed) {
            return Err(Failure::new("told to fail"));
        }
        for mut node in nodes {
            node.on_host(|to, from| to.copy_from_slice(from[0]))?;
        }
        Ok(())
    }
}

/// The logger hears of the failure, and panics: the call that failed panics then, and nothing is left for the next one.
#[test]
fn logger_panic_takes_the_place_of_a_failure_of_a_device() {
    let _alone = install();
    let device = Registry::register("Failing", [Failing]).unwrap().devices().unwrap()[0];
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2]).unwrap();
    let y = ctx.relu(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32, 2.0]).unwrap();

    FAILS.store(true, Ordering::Relaxed);
    assert!(matches!(run.compute(), Err(Error::DeviceFailed { .. })));
    for kind in 0..3 {
        PANICS.store(true, Ordering::Relaxed);
        let compute = || match kind {
            0 => run.compute(),
            1 => run.compute_async(|| ()),
            _ => run.compute_with(|_| true, |_| ControlFlow::Continue(())),
        };
        let panic = catch_unwind(AssertUnwindSafe(compute));
        PANICS.store(false, Ordering::Relaxed);
        let message = panic.unwrap_err();
        let message = message.downcast_ref::<String>().unwrap();
        assert!(message.contains("Failing0: DriverStream::compute: told to fail"), "{message}");
        assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })));
    }
    FAILS.store(false, Ordering::Relaxed);
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [1.0, 2.0]);
}
