//! Allocators of several buffer types, and size estimates.

#![cfg(test)]
#![allow(clippy::mem_forget, reason = "leaks")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ggml::prelude::*;
use ggml::{BufferType, Error, GraphAllocator};

/// Two buffer types that the CPU can use: its own, and that of buffers over user memory.
fn two_types() -> [BufferType; 2] {
    #[repr(align(64))]
    struct Aligned([u8; 64]);
    impl AsRef<[u8]> for Aligned {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4]).unwrap();
    let cpu = Device::cpu().unwrap();
    let weights = builder.place_over(cpu, Aligned([0; 64]), |_| 0).unwrap();
    let types = [cpu.buffer_type(), weights.buffers()[0].buffer_type()];
    assert_ne!(types[0], types[1], "two types");
    types
}

/// `-(x + x)^2 + x`; none of the operations can be computed in place.
fn formula(ctx: &Context, n: i64) -> (Tensor<'_>, Tensor<'_>) {
    let x = ctx.input("x", DType::F32, [n]).unwrap();
    let sum = ctx.add(x, x).unwrap().named("sum").unwrap();
    let square = ctx.mul(sum, sum).unwrap().named("square").unwrap();
    let y = ctx.add(ctx.neg(square).unwrap(), x).unwrap().named("y").unwrap();
    (x, y)
}

#[test]
fn graph_allocator_places_tensors_in_the_chosen_buffer_types() {
    let ctx = Context::new();
    let (x, y) = formula(&ctx, 1024);
    let graph = ctx.graph([y]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    // Chooses one of the two types per tensor, by a bit.
    let names = ["x", "sum", "square", "y"];
    let chosen = Arc::new(AtomicUsize::new(0));
    let bits = Arc::clone(&chosen);
    let choose = move |t: Tensor<'_>| {
        let bit = names.iter().position(|&n| t.name() == n).unwrap_or(0);
        bits.load(Ordering::Relaxed) >> bit & 1
    };
    let mut allocator = GraphAllocator::with_buffers(&two_types(), choose).unwrap();
    assert_eq!(allocator.buffer_types(), two_types());
    assert_eq!(allocator.buffer_sizes().unwrap(), [0, 0], "nothing was taken yet");
    for bits in 0..16 {
        chosen.store(bits, Ordering::Relaxed);
        let plans = allocator.plans();
        for _ in 0..2 {
            let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
            memory.set(x, &[3.0_f32; 1024]).unwrap();
            memory.compute().unwrap();
            assert_eq!(memory.get::<f32>(y).unwrap(), [-33.0; 1024], "{bits:04b}");
        }
        assert_eq!(allocator.plans(), plans + 1, "planned anew for another choice, and only then");
    }
}

#[test]
fn graph_allocator_reports_sizes_before_allocating() {
    let ctx = Context::new();
    let (_, y) = formula(&ctx, 1024);
    let graph = ctx.graph([y]).unwrap();
    for (first, want) in [(true, [true, false]), (false, [true, true])] {
        let choose = move |t: Tensor<'_>| usize::from(!first && t.name() == "square");
        let mut allocator = GraphAllocator::with_buffers(&two_types(), choose).unwrap();
        let sizes = allocator.sizes(&graph).unwrap();
        assert_eq!(sizes.iter().map(|&n| n >= 4096).collect::<Vec<_>>(), want, "{sizes:?}");
        assert_eq!(allocator.buffer_sizes().unwrap(), [0, 0], "nothing was taken");
        allocator.reserve(&graph).unwrap();
        assert_eq!(allocator.buffer_sizes().unwrap(), sizes, "what was said");
        assert_eq!(allocator.sizes(&graph).unwrap(), sizes, "whatever there is");
        assert_eq!(allocator.buffer_sizes().unwrap(), sizes, "which stays");
    }
    // Sizes beyond the available memory can be estimated.
    let huge = ctx.graph([ctx.relu(ctx.input("h", DType::F32, [1 << 30, 1 << 16]).unwrap()).unwrap()]).unwrap();
    let allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    assert!(allocator.sizes(&huge).unwrap()[0] >= 1 << 48, "256 TiB");
    let memory = allocator.sizes(&graph).unwrap();
    assert!(memory[0] >= 3 * 4096, "{memory:?}");
}

#[test]
fn graph_allocator_refuses_invalid_buffer_type_lists() {
    let ctx = Context::new();
    let (_, y) = formula(&ctx, 8);
    let graph = ctx.graph([y]).unwrap();
    let [one, two] = two_types();
    for bufts in [&[][..], &[one, one], &[one, two, one]] {
        let result = GraphAllocator::with_buffers(bufts, |_| 0).map(drop);
        assert!(matches!(result, Err(Error::Param { name: "bufts", .. })), "{result:?}");
    }
    for number in [2, usize::MAX, 1 << 32] {
        let mut allocator = GraphAllocator::with_buffers(&[one, two], move |_| number).unwrap();
        let mut backend = Backend::cpu().unwrap();
        let (sized, reserved) = (allocator.sizes(&graph).map(drop), allocator.reserve(&graph));
        let results = [sized, reserved, allocator.alloc(&graph, &mut backend).map(drop)];
        for result in results {
            assert!(matches!(result, Err(Error::Param { name: "choose", .. })), "{number}: {result:?}");
        }
    }
}

/// The closure may do anything, even allocate the same graph.
#[test]
fn graph_allocator_choice_may_allocate_the_same_graph() {
    let ctx: &'static Context = Box::leak(Box::default());
    let (x, y) = formula(ctx, 8);
    let graph: &'static _ = Box::leak(Box::new(ctx.graph([y]).unwrap()));
    std::thread_local! {
        static GRAPH: std::cell::Cell<Option<&'static Graph<'static>>> = const { std::cell::Cell::new(None) };
    }
    GRAPH.set(Some(graph));
    let choose = |_: Tensor<'_>| {
        let Some(graph) = GRAPH.take() else { return 0 };
        let other = Box::leak(Box::new(GraphAllocator::new(Device::cpu().unwrap().buffer_type())));
        let backend = Box::leak(Box::new(Backend::cpu().unwrap()));
        std::mem::forget(other.alloc(graph, backend).unwrap());
        0
    };
    let mut allocator = GraphAllocator::with_buffers(&two_types(), choose).unwrap();
    let mut backend = Backend::cpu().unwrap();
    let mut run = allocator.alloc(graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32; 8]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [1.0 - 4.0; 8]);
}

/// H21: after a failed allocation, ggml assumes that its plan has memory.
#[test]
fn h21_graph_allocator_works_after_out_of_memory() {
    let ctx = Context::new();
    let huge = ctx.graph([ctx.relu(ctx.input("h", DType::F32, [1 << 30, 1 << 16]).unwrap()).unwrap()]).unwrap();
    let (x, y) = formula(&ctx, 8);
    let small = ctx.graph([y]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    for last in [0, 1] {
        let choose = move |t: Tensor<'_>| if t.name() == "x" { 1 - last } else { last };
        let mut allocator = GraphAllocator::with_buffers(&two_types(), choose).unwrap();
        for _ in 0..2 {
            for _ in 0..2 {
                let result = allocator.alloc(&huge, &mut backend).map(drop);
                assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{result:?}");
            }
            let mut memory = allocator.alloc(&small, &mut backend).unwrap();
            memory.set(x, &[1.0_f32; 8]).unwrap();
            memory.compute().unwrap();
            assert_eq!(memory.get::<f32>(y).unwrap(), [-3.0; 8], "{last}");
        }
    }
}

/// A buffer type that the backend's device can't use.
#[cfg(feature = "rpc")]
#[test]
fn graph_allocator_requires_buffer_types_the_backend_supports() {
    use ggml::rpc;
    let server = rpc::Server::builder().start().unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let remote = connection.devices()[0];
    let cpu = Device::cpu().unwrap();
    let ctx = Context::new();
    let (_, y) = formula(&ctx, 8);
    let graph = ctx.graph([y]).unwrap();
    let choose = |t: Tensor<'_>| usize::from(t.name() == "square");
    for (bufts, device) in [([cpu, remote], cpu), ([cpu, remote], remote), ([remote, cpu], cpu)] {
        let bufts = bufts.map(Device::buffer_type);
        let mut allocator = GraphAllocator::with_buffers(&bufts, choose).unwrap();
        let mut backend = device.init().unwrap();
        let result = allocator.alloc(&graph, &mut backend).map(drop);
        assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
    }
}

#[test]
fn weights_builder_size_equals_the_allocation() {
    let cpu = Device::cpu().unwrap().buffer_type();
    let mut builder = WeightsBuilder::new();
    assert_eq!(builder.size(cpu).unwrap(), 0, "nothing");
    builder.tensor("a", DType::F32, [5]).unwrap();
    builder.tensor("b", DType::Q4_0, [64, 3]).unwrap();
    builder.tensor("c", DType::I8, [1]).unwrap();
    let size = builder.size(cpu).unwrap();
    let weights = builder.place(cpu).unwrap();
    assert_eq!(weights.buffers().iter().map(ggml::Buffer::size).sum::<usize>(), size, "what it became");
    let each: Vec<_> = weights.iter().map(|t| cpu.alloc_size(t).unwrap()).collect();
    assert_eq!(each, [20, 108, 1], "the CPU adds nothing");
}

#[test]
fn device_supports_op_and_offloads() {
    let cpu = Device::cpu().unwrap();
    let ctx = Context::new();
    let (x, y) = formula(&ctx, 256);
    let integers = ctx.input("i", DType::I32, [256]).unwrap();
    for t in [x, y, integers, ctx.reshape(x, [16, 16]).unwrap()] {
        assert!(cpu.supports_op(t).unwrap(), "{t:?}");
        assert!(!cpu.offloads(t).unwrap(), "the CPU takes no work from others: {t:?}");
    }
    let product = ctx.mul_mat(integers, x).unwrap();
    assert!(!cpu.supports_op(product).unwrap(), "integers are not multiplied");
    let graph = ctx.graph([product]).unwrap();
    let mut allocator = GraphAllocator::new(cpu.buffer_type());
    let result = allocator.alloc(&graph, &mut cpu.init().unwrap()).map(drop);
    assert!(matches!(result, Err(Error::Unsupported { .. })), "as an allocation sees it: {result:?}");
    assert_eq!(Device::by_type(DeviceType::Cpu).unwrap(), cpu);
    assert!(matches!(Device::by_type(DeviceType::Other(99)), Err(Error::NoSuch { .. })), "no such kind");
}
