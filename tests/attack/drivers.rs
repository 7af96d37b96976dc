//! Devices written in Rust that change their mind.

use std::sync::atomic::{AtomicBool, Ordering};

use ggml::driver::{
    Driver, DriverBuffer, DriverInfo, DriverStream, Failure, NoEvent, Node, Nodes, TensorView,
};
use ggml::prelude::*;
use ggml::{Error, Registry};

/// Claims everything, until it claims nothing.
struct Fickle;

static CLAIMS: AtomicBool = AtomicBool::new(true);

impl Driver for Fickle {
    type Buffer = Self;
    type Stream = Self;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new("Fickle".into(), DeviceType::Gpu).with_memory(true)
    }

    fn supports(&self, _: &Node<'_, Self>) -> bool {
        CLAIMS.load(Ordering::SeqCst)
    }

    fn allocate(&self, _: usize) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn stream(&self, _: &str) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl DriverBuffer for Fickle {
    fn set(&self, _: TensorView<'_>, _: usize, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn get(&self, _: TensorView<'_>, _: usize, _: &mut [u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn fill(&self, _: usize, _: usize, _: u8) -> Result<(), Failure> {
        Ok(())
    }
}

impl DriverStream<Self> for Fickle {
    fn compute(&mut self, _: Nodes<'_, Self>) -> Result<(), Failure> {
        Ok(())
    }
}

/// The scheduler asks a device again for each allocation. What it then gave to the CPU was not checked again, if the plan
/// was the last one: the CPU has no kernel for this cast, and ends the process.
#[test]
fn capability_that_changes_after_planning_is_an_error() {
    let device = Registry::register("Fickle", [Fickle]).unwrap().devices().unwrap()[0];
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
