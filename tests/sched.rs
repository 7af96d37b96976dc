//! The scheduler over one CPU backend, or over the device in the environment variable `GGML_TEST_DEVICE` and the CPU.

#![cfg(test)]
#![allow(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

use ggml::BufferType;
use ggml::prelude::*;
use testkit::device::{here, sched};

#[test]
fn run_computes_a_graph_with_inputs_of_all_forms() {
    let ctx = Context::new();
    let inputs = [0, 1, 2].map(|i| ctx.input(&format!("x{i}"), DType::F32, [2]).unwrap());
    let rows = ctx.input("rows", DType::I32, [1]).unwrap();
    let [a, b, c] = inputs;
    let sum = ctx.add(ctx.add(a, b).unwrap(), c).unwrap();
    let table = ctx.reshape(sum, [1, 2]).unwrap();
    let y = ctx.get_rows(table, rows).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let (ones, second) = (vec![1.0_f32; 2], &[1_i32]);
    let run = sched.run(&graph, ((a, &ones), (b, &[2.0_f32; 2]), (c, &ones[..]), (rows, second))).unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [4.0], "a tuple");
    drop(run);
    let run = sched.run(&graph, ([(a, &ones), (b, &ones), (c, &vec![2.0; 2])], (rows, second))).unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [4.0], "an array");
    drop(run);
    let run = sched.run(&graph, (inputs.map(|x| (x, &ones)).to_vec(), (rows, second))).unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [3.0], "a vector");
    drop(run);

    assert!(matches!(sched.run(&graph, (a, &ones)), Err(Error::InputNotSet { .. })), "three others");
    assert!(matches!(sched.run(&graph, ((a, second), (b, &ones))), Err(Error::ElementType { .. })));
    assert!(matches!(sched.run(&graph, (y, &[1.0_f32])), Err(Error::NotPart { .. })));
    // A run may be computed again, and needs no inputs where the graph has none.
    let three = ctx.arange(0.0, 3.0, 1.0).unwrap();
    let graph = ctx.graph([three]).unwrap();
    let mut run = sched.run(&graph, ()).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(three).unwrap(), [0.0, 1.0, 2.0]);
}

#[test]
fn sched_feed_forward_equals_plain_rust() {
    let (k, m, n) = (6, 4, 3);
    let w_data: Vec<f32> = (0..k * m).map(|i| (i as f32 * 0.37).sin()).collect();
    let x_data: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.73).cos()).collect();
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [k as i64, m as i64]).unwrap();
    let mut weights = builder.place(here()).unwrap();
    weights.set("w", &w_data).unwrap();

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [k as i64, n as i64]).unwrap();
    let y = ctx.relu(ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    for _ in 0..3 {
        let mut run = sched.alloc(&graph).unwrap();
        assert!(matches!(run.compute(), Err(Error::InputNotSet { .. })));
        run.set(x, &x_data).unwrap();
        assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })));
        run.compute().unwrap();
        let got: Vec<f32> = run.get(y).unwrap();
        for j in 0..n {
            for i in 0..m {
                let dot: f32 = (0..k).map(|l| w_data[i * k + l] * x_data[j * k + l]).sum();
                assert!((got[j * m + i] - dot.max(0.0)).abs() < 1e-5, "{i} {j}");
            }
        }
    }
}

#[test]
fn graph_lists_operations_and_sources() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4, 2]).unwrap();
    let weights = builder.place(here()).unwrap();
    let w = weights.tensor("w").unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 3]).unwrap();
    let product = ctx.mul_mat(w, x).unwrap();
    let y = ctx.relu(product).unwrap();
    let other = ctx.relu(y).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    for allocated in [false, true] {
        let run = allocated.then(|| sched.alloc(&graph).unwrap());
        assert_eq!(graph.nodes().map(Tensor::op).collect::<Vec<_>>(), ["MUL_MAT", "RELU"]);
        assert_eq!(x.op(), "NONE");
        assert_eq!(graph.sources(y).collect::<Vec<_>>(), [product]);
        assert_eq!(graph.sources(product).collect::<Vec<_>>(), [w, x]);
        assert_eq!(graph.sources(x).count(), 0);
        assert_eq!(graph.sources(other).count(), 0);
        drop(run);
    }
}

/// A size estimate makes a plan, but allocates nothing.
#[test]
fn h21_buffer_sizes_are_estimated_without_allocating() {
    let ctx = Context::new();
    let huge = ctx.input("huge", DType::F32, [1 << 30, 1 << 16]).unwrap();
    let huge = ctx.graph([ctx.relu(huge).unwrap()]).unwrap();
    let x = ctx.input("x", DType::F32, [1 << 16]).unwrap();
    let y = ctx.relu(x).unwrap();
    let small = ctx.graph([y]).unwrap();
    let twins = Sched::builder().backend(Backend::cpu().unwrap()).backend(Backend::cpu().unwrap());
    for mut sched in [sched(), twins.build().unwrap()] {
        for _ in 0..2 {
            let sizes = sched.reserve_size(&huge).unwrap();
            assert_eq!(sizes.iter().sum::<usize>(), 1 << 49, "input and result, counted once: {sizes:?}");
            let sizes = sched.reserve_size(&small).unwrap();
            assert!((1 << 18..1 << 20).contains(&sizes.iter().sum::<usize>()), "{sizes:?}");
            let mut run = sched.alloc(&small).unwrap();
            let data: Vec<f32> = (0..1 << 16).map(|i| i as f32 - 1000.0).collect();
            run.set(x, &data).unwrap();
            run.compute().unwrap();
            assert!(run.get::<f32>(y).unwrap().iter().zip(&data).all(|(y, x)| *y == x.max(0.0)));
            assert_eq!(run.buffer_sizes().unwrap(), sizes);
            drop(run);
            assert!(matches!(sched.alloc(&huge), Err(Error::OutOfMemory { .. })));
            sched.reserve_size(&huge).unwrap();
        }
    }
    // The first scheduler's plan is gone, and maybe its memory.
    let mut sched = sched();
    drop(sched.alloc(&small).unwrap());
    sched.reserve_size(&huge).unwrap();
    let mut run = sched.alloc(&small).unwrap();
    run.set(x, &vec![-1.0_f32; 1 << 16]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), vec![0.0; 1 << 16]);
}

#[repr(align(64))]
struct Memory([u8; 64]);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Host memory of a buffer type other than the CPU's default one.
fn other_host_memory() -> BufferType {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4]).unwrap();
    let weights = builder.place_over(Device::cpu().unwrap(), Memory([0; 64]), |_| 0).unwrap();
    weights.buffers()[0].buffer_type()
}

#[test]
fn backend_with_computes_in_the_given_buffer_type() {
    let (usual, other) = (Device::cpu().unwrap().buffer_type(), other_host_memory());
    assert_ne!(usual, other);
    let first = Sched::builder().backend_with(Backend::cpu().unwrap(), other);
    let mut sched = first.backend(Backend::cpu().unwrap()).build().unwrap();
    assert_eq!(sched.buffer_types(), [other, usual]);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let (a, b) = (ctx.neg(x).unwrap(), ctx.relu(ctx.neg(x).unwrap()).unwrap());
    let graph = ctx.graph([a, b]).unwrap();
    // ggml moves either to the first backend if both use the same memory.
    let mut run = sched.alloc_pinned(&graph, &[(a, 0), (b, 1)]).unwrap();
    assert!(run.buffer_sizes().unwrap().iter().all(|&n| n > 0), "each has its own");
    run.set(x, &[1.0_f32, -2.0, 3.0, -4.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(a).unwrap(), [-1.0, 2.0, -3.0, 4.0]);
    assert_eq!(run.get::<f32>(b).unwrap(), [0.0, 2.0, 0.0, 4.0]);
    drop(run);
    let huge = ctx.input("huge", DType::F32, [1 << 30, 1 << 16]).unwrap();
    let huge = ctx.graph([ctx.relu(huge).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend_with(Backend::cpu().unwrap(), other).build().unwrap();
    let message = sched.alloc(&huge).unwrap_err().to_string();
    assert!(message.contains(&other.name()), "{message}");
}

/// The device supports this buffer type only for weights.
#[test]
fn backend_with_refuses_buffer_types_for_weights_only() {
    for extra in Device::cpu().unwrap().extra_buffer_types().unwrap() {
        let sched = Sched::builder().backend_with(Backend::cpu().unwrap(), extra).build();
        assert!(matches!(sched, Err(Error::Backends { .. })), "{extra:?}");
    }
}
