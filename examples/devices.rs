//! Lists this machine's devices with their memory, and computes a small product on each.
#![allow(clippy::print_stdout, reason = "a program for people to read")]

use ggml::prelude::*;
use ggml::{Registry, SchedBuilder};

/// Multiplies a matrix of two rows by a vector on `device`, with the CPU as fallback.
fn product(device: Device) -> ggml::Result<Vec<f32>> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("matrix", DType::F32, [3, 2])?;
    let mut weights = builder.place(device)?;
    weights.set("matrix", &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [3])?;
    let y = ctx.mul_mat(weights.tensor("matrix")?, x)?;
    let graph = ctx.graph([y])?;
    let mut sched = backends(device)?.build()?;
    sched.run(&graph, (x, &[1.0_f32, 10.0, 100.0]))?.get(y)
}

/// A scheduler over the device and, if that is another one, the CPU.
fn backends(device: Device) -> ggml::Result<SchedBuilder> {
    let builder = Sched::builder();
    let builder = if device.device_type() == DeviceType::Cpu { builder } else { builder.backend(device.init()?) };
    Ok(builder.backend(Backend::cpu()?))
}

fn main() -> ggml::Result<()> {
    // Needed only if backends are loaded at run time (feature `dynamic-backends`).
    let registries = Registry::load_all()?;
    println!("backends: {registries:?}");
    for device in Device::all()? {
        let (memory, kind) = (device.memory()?, device.device_type());
        println!("{device} ({kind:?}): {}", device.description());
        println!("  memory: {} of {} MiB are free", memory.free >> 20, memory.total >> 20);
        println!("  tensors lie in buffers of type {}", device.buffer_type().name());
        println!("  [1 2 3; 4 5 6] x [1 10 100] = {:?}", product(device)?);
    }
    println!("the best one: {}", Device::best()?);
    Ok(())
}
