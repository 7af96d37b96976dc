//! Several threads use one device.

use ggml::GraphAllocator;
use ggml::prelude::*;
use testkit::bench::Bench;

use crate::beside::distance;
use crate::{REACH, backend, cpu, vulkan};

fn threads_with_own_vulkan_backends_compute() {
    std::thread::scope(|scope| {
        for i in 0..3 {
            scope.spawn(move || {
                let mut backend = backend();
                for round in 0..10 {
                    let ctx = Context::new();
                    let bench = Bench::new(&ctx, REACH);
                    let x = bench.f32([96, 8 + i]);
                    let y = ctx.soft_max(ctx.add(x, bench.f32([96])).unwrap()).unwrap();
                    let got = bench.run(y, &mut backend).unwrap();
                    let want = bench.run(y, &mut cpu()).unwrap();
                    assert!(distance(&got, &want) < 1e-3, "{i} {round}");
                }
            });
        }
    });
}

fn vulkan_objects_move_between_threads() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [64]).unwrap();
    let mut weights = builder.place(vulkan().buffer_type()).unwrap();
    weights.set("w", &[1.5_f32; 64]).unwrap();
    let mut parts = (backend(), GraphAllocator::new(vulkan().buffer_type()), weights);
    for round in 0..3 {
        parts = std::thread::spawn(move || {
            let (mut backend, mut allocator, weights) = parts;
            let ctx = Context::new();
            let x = ctx.input("x", DType::F32, [64]).unwrap();
            let y = ctx.mul(x, weights.tensor("w").unwrap()).unwrap();
            let graph = ctx.graph([y]).unwrap();
            let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
            memory.set(x, &[round as f32; 64]).unwrap();
            memory.compute().unwrap();
            assert_eq!(memory.get::<f32>(y).unwrap(), [1.5 * round as f32; 64]);
            drop(memory);
            drop(graph);
            drop(ctx);
            (backend, allocator, weights)
        })
        .join()
        .unwrap();
    }
}

/// Several threads read weights while others write to memory of their own.
fn vulkan_memory_is_used_by_many_threads() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4096]).unwrap();
    let mut weights = builder.place(vulkan().buffer_type()).unwrap();
    weights.set("w", &[2.5_f32; 4096]).unwrap();
    std::thread::scope(|scope| {
        for i in 0..4 {
            let weights = &weights;
            scope.spawn(move || {
                for round in 0..20 {
                    assert_eq!(weights.tensor("w").unwrap().read::<f32>().unwrap(), [2.5; 4096]);
                    let mut builder = WeightsBuilder::new();
                    builder.tensor("own", DType::F32, [1000]).unwrap();
                    let state = builder.place_state(vulkan().buffer_type()).unwrap();
                    let numbers = [(i * 100 + round) as f32; 1000];
                    state.set("own", &numbers).unwrap();
                    assert_eq!(state.tensor("own").unwrap().read::<f32>().unwrap(), numbers);
                }
            });
        }
    });
}

testkit::trials! {
    threads_with_own_vulkan_backends_compute,
    vulkan_objects_move_between_threads,
    vulkan_memory_is_used_by_many_threads,
}
