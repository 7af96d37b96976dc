//! The device's memory, and running out of it.

use ggml::GraphAllocator;
use ggml::prelude::*;

use crate::{cpu, device, in_host_memory, sample};

#[test]
fn device_memory_and_buffer_type_are_consistent() {
    let (device, memory) = (device(), device().memory().unwrap());
    eprintln!("memory: free={} total={}", memory.free, memory.total);
    assert!(memory.free <= memory.total && (in_host_memory() || memory.total > 0), "{memory:?}");
    let buft = device.buffer_type();
    assert!(buft.alignment().unwrap().is_power_of_two() && device.supports_buffer_type(buft));
    assert_eq!(buft.is_host(), in_host_memory(), "{buft:?}");
    assert!(in_host_memory() || buft.device() == Some(device), "{buft:?}");
    assert!(buft.max_size().unwrap() > 1 << 20);
}

#[test]
fn weights_of_64_mib_round_trip() {
    const N: usize = 1 << 24;
    let before = device().memory().unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [N as i64]).unwrap();
    let mut weights = builder.place(device().buffer_type()).unwrap();
    let data = sample(N, 1);
    weights.set("w", &data).unwrap();
    assert!(weights.tensor("w").unwrap().read::<f32>().unwrap() == data);
    assert_eq!(weights.buffers()[0].is_host(), in_host_memory());
    let there = device().memory().unwrap();
    eprintln!("taken: {}", before.free.saturating_sub(there.free));
    assert_eq!(there.total, before.total);
}

/// 256 TiB, which no system gives a process, whatever it promises, with dimensions and strides that each fit into 32 bits.
const HUGE: [i64; 4] = [1 << 16, 1 << 7, 1 << 6, 1 << 17];

/// An impossible allocation is an error, and the device stays usable.
#[test]
fn h21_out_of_memory_is_an_error_and_the_device_stays_usable() {
    let device = device();
    let ctx = Context::new();
    let huge = ctx.input("huge", DType::F32, HUGE).unwrap();
    let huge = ctx.graph([ctx.relu(huge).unwrap()]).unwrap();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.relu(x).unwrap();
    let small = ctx.graph([y]).unwrap();
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(cpu()).build().unwrap();
    for _ in 0..2 {
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::F32, HUGE).unwrap();
        let placed = builder.place(device.buffer_type());
        assert!(matches!(placed, Err(Error::OutOfMemory { .. })), "{placed:?}");
        // CUDA's kernels don't count so many elements.
        let refused = |error| match error {
            Error::Unsupported { .. } => testkit::device::rounding() > 0.0,
            error => matches!(error, Error::OutOfMemory { .. }),
        };
        assert!(allocator.alloc(&huge, &mut backend).is_err_and(refused));
        assert!(sched.alloc(&huge).is_err_and(refused));
        let mut memory = allocator.alloc(&small, &mut backend).unwrap();
        memory.set(x, &[1.0_f32, -1.0, 2.0, -2.0]).unwrap();
        memory.compute().unwrap();
        assert_eq!(memory.get::<f32>(y).unwrap(), [1.0, 0.0, 2.0, 0.0]);
        drop(memory);
        let mut run = sched.alloc(&small).unwrap();
        run.set(x, &[1.0_f32, -1.0, 2.0, -2.0]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [1.0, 0.0, 2.0, 0.0]);
    }
}

/// Freed memory can be allocated again.
#[test]
fn freed_memory_can_be_allocated_again() {
    let free = || device().memory().unwrap().free;
    let take = || {
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::F32, [1 << 24]).unwrap();
        drop(builder.place(device().buffer_type()).unwrap());
    };
    take();
    let before = free();
    (0..20).for_each(|_| take());
    let lost = before.saturating_sub(free());
    // Other programs allocate memory too, especially on a host.
    assert!(in_host_memory() || lost < 20 << 26, "{lost} bytes are gone");
}
