//! Devices written in Rust that change their mind.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoEvent, Node, Nodes};
use ggml::prelude::*;
use ggml::{Error, Registry};
use testkit::nothing::Nothing;

/// Claims everything, until it claims nothing.
struct Fickle(String);

static CLAIMS: AtomicBool = AtomicBool::new(true);

impl Driver for Fickle {
    type Buffer = Nothing;
    type Stream = Nothing;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.0.clone(), DeviceType::Gpu).with_memory(true)
    }

    fn supports(&self, _: &Node<'_, Self>) -> bool {
        CLAIMS.load(Ordering::SeqCst)
    }

    fn allocate(&self, _: usize) -> Result<Nothing, Failure> {
        Ok(Nothing)
    }

    fn stream(&self, _: &str) -> Result<Nothing, Failure> {
        Ok(Nothing)
    }
}

impl DriverStream<Fickle> for Nothing {
    fn compute(&mut self, _: Nodes<'_, Fickle>) -> Result<(), Failure> {
        Ok(())
    }
}

/// The scheduler asks a device again for each allocation. What it then gave to the CPU was not checked again, if the plan
/// was the last one: the CPU has no kernel for this cast, and ends the process.
#[test]
fn capability_that_changes_after_planning_is_an_error() {
    let device = Registry::register("Fickle", [Fickle("Fickle".into())]).unwrap().devices().unwrap()[0];
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::Q8_0, [32]).unwrap();
    let weights = builder.place(device).unwrap();
    let ctx = Context::new();
    let y = ctx.cast(weights.tensor("w").unwrap(), DType::F16).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let backend = device.init().unwrap();
    let mut sched = Sched::builder().backend(backend).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut compute = || sched.alloc(&graph)?.compute();
    compute().unwrap();
    CLAIMS.store(false, Ordering::SeqCst);
    let error = compute().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

/// Two threads found a name free, and both took it.
#[test]
fn a_name_is_registered_once() {
    for i in 0..100 {
        let name = format!("Contested{i}");
        let register = || Registry::register(&name, [Fickle(name.clone())]).is_ok();
        let barrier = Barrier::new(2);
        let mut done = [false; 2];
        std::thread::scope(|scope| {
            for done in &mut done {
                scope.spawn(|| {
                    barrier.wait();
                    *done = register();
                });
            }
        });
        assert_eq!(done.iter().filter(|&&is| is).count(), 1, "{name}");
    }
}
