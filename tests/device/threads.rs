//! Several threads, each with its own backend on the device.

use ggml::GraphAllocator;
use ggml::prelude::*;

use crate::{device, sample};

const N: usize = 96;

fn product(backend: &mut Backend, seed: u64) -> Vec<f32> {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [N as i64, N as i64]).unwrap();
    let y = ctx.mul_mat(x, ctx.relu(x).unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    let mut memory = allocator.alloc(&graph, backend).unwrap();
    memory.set(x, &sample(N * N, seed)).unwrap();
    memory.compute().unwrap();
    memory.get(y).unwrap()
}

#[test]
fn threads_with_own_backends_compute_concurrently() {
    let alone: Vec<_> = (0..4).map(|seed| product(&mut device().init().unwrap(), seed)).collect();
    std::thread::scope(|scope| {
        for (seed, want) in alone.iter().enumerate() {
            scope.spawn(move || {
                let mut backend = device().init().unwrap();
                for _ in 0..15 {
                    assert!(product(&mut backend, seed as u64) == *want, "beside others");
                }
            });
        }
    });
}

#[test]
fn backend_moves_between_threads() {
    let mut backend = device().init().unwrap();
    let want = product(&mut backend, 5);
    for _ in 0..3 {
        (backend, _) = std::thread::spawn(move || {
            let got = product(&mut backend, 5);
            (backend, got)
        })
        .join()
        .unwrap();
    }
    assert!(product(&mut backend, 5) == want);
}

#[test]
fn weights_are_read_by_many_threads() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [N as i64, N as i64]).unwrap();
    let mut weights = builder.place(device().buffer_type()).unwrap();
    let data = sample(N * N, 6);
    weights.set("w", &data).unwrap();
    let (weights, data) = (&weights, &data);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let mut backend = device().init().unwrap();
                let ctx = Context::new();
                let y = ctx.scale(weights.tensor("w").unwrap(), 2.0).unwrap();
                let graph = ctx.graph([y]).unwrap();
                let mut allocator = GraphAllocator::new(device().buffer_type());
                for _ in 0..10 {
                    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
                    memory.compute().unwrap();
                    let got: Vec<f32> = memory.get(y).unwrap();
                    assert!(got.iter().zip(data).all(|(a, b)| *a == 2.0 * b));
                }
            });
        }
    });
}
