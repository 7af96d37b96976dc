//! Training: gradients compared with finite differences, steps and results with plain Rust, and refused computations.

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

mod batches;
mod data;
mod failed;
mod fit;
mod gradients;
mod random;
mod refused;
mod steps;

use ggml::opt::{LossType, OptContext, OptParams, Optimizer};
use ggml::prelude::*;

/// One thread, the fastest for such small graphs.
fn cpu() -> Sched {
    let mut cpu = Backend::cpu().unwrap();
    cpu.set_threads(1).unwrap();
    Sched::builder().backend(cpu).build().unwrap()
}

/// A state with tensors `p0`, `p1`, and so on.
fn state(shapes: &[[i64; 4]]) -> State {
    let mut builder = WeightsBuilder::new();
    for (i, &shape) in shapes.iter().enumerate() {
        builder.tensor(&format!("p{i}"), DType::F32, shape).unwrap();
    }
    builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap()
}

/// Values within 0.45 of `middle`, with a long period.
fn waves(n: usize, phase: f32, middle: f32) -> Vec<f32> {
    (0..n).map(|i| 0.45_f32.mul_add((i as f32).mul_add(1.7, phase).sin(), middle)).collect()
}

/// An optimisation of the sum of the outputs.
fn sum<'p>(parameters: &[Tensor<'p>], optimizer: impl Into<Optimizer>) -> ggml::Result<OptContext<'p>> {
    let params = OptParams::new(LossType::Sum).with_optimizer(optimizer);
    OptContext::new(parameters, params)
}
