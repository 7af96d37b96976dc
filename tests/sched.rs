//! The scheduler over one CPU backend.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::float_cmp,
    clippy::mem_forget,
    clippy::missing_assert_message,
    reason = "a test fails by panicking, and its numbers are small"
)]

use ggml::prelude::*;

fn cpu() -> Sched {
    Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap()
}

#[test]
fn a_feed_forward_step_is_that_of_plain_rust() {
    let (k, m, n) = (6, 4, 3);
    let w_data: Vec<f32> = (0..k * m).map(|i| (i as f32 * 0.37).sin()).collect();
    let x_data: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.73).cos()).collect();
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [k as i64, m as i64]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    weights.set("w", &w_data).unwrap();

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [k as i64, n as i64]).unwrap();
    let y = ctx.relu(ctx.mul_mat(weights.get("w").unwrap(), x).unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = cpu();
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
fn a_graph_tells_what_its_operations_are_and_use() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4, 2]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let w = weights.get("w").unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 3]).unwrap();
    let product = ctx.mul_mat(w, x).unwrap();
    let y = ctx.relu(product).unwrap();
    let other = ctx.relu(y).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = cpu();
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
