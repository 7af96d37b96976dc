//! Concurrent work on several threads, and moving objects between them. `cargo xtask helgrind` runs this test.

#![cfg(test)]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "small numbers")]

use std::sync::Barrier;
use std::thread;

use ggml::prelude::*;
use ggml::{GraphAllocator, Threads};

/// The number of rows and columns of all matrices.
const N: usize = 32;

/// The number of computations per thread.
const STEPS: usize = 8;

/// A CPU backend. Its number of threads can be set, since a race detector doesn't understand how ggml's own threads
/// synchronise.
fn backend() -> Backend {
    let threads = std::env::var("GGML_TEST_THREADS").map_or(2, |n| n.parse().unwrap());
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(Threads::new(threads).with_all(true)).unwrap();
    backend
}

fn sched() -> Sched {
    Sched::builder().backend(backend()).build().unwrap()
}

/// Twice the identity matrix, and a vector of threes.
fn weights() -> Weights {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [N as i64, N as i64]).unwrap();
    builder.tensor("b", DType::F32, [N as i64]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let identity: Vec<f32> = (0..N * N).map(|i| if i % (N + 1) == 0 { 2.0 } else { 0.0 }).collect();
    weights.set("w", &identity).unwrap();
    weights.set("b", &[3.0_f32; N]).unwrap();
    weights
}

/// A vector that each step adds to.
fn state() -> State {
    let mut builder = WeightsBuilder::new();
    builder.tensor("sum", DType::F32, [N as i64]).unwrap();
    builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap()
}

/// Computes `w x + b`, adds it to the state, and returns the state's new values.
fn step(ctx: &Context, sched: &mut Sched, weights: &Weights, state: &State, x: f32) -> Vec<f32> {
    let input = ctx.input("x", DType::F32, [N as i64]).unwrap();
    let y = ctx.add(ctx.mul_mat(weights.tensor("w").unwrap(), input).unwrap(), weights.tensor("b").unwrap()).unwrap();
    let sum = state.tensor("sum").unwrap();
    let total = ctx.cpy(ctx.add(sum, y).unwrap(), sum).unwrap();
    let graph = ctx.graph([total]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(input, &[x; N]).unwrap();
    run.compute().unwrap();
    sum.read().unwrap()
}

#[test]
fn two_schedulers_share_weights() {
    let weights = weights();
    let barrier = Barrier::new(2);
    thread::scope(|s| {
        for x in [1.0_f32, 2.0] {
            let (weights, barrier) = (&weights, &barrier);
            s.spawn(move || {
                let (mut ctx, mut sched, state) = (Context::new(), sched(), state());
                barrier.wait();
                for i in 1..=STEPS {
                    let sum = step(&ctx, &mut sched, weights, &state, x);
                    assert_eq!(sum, [(2.0 * x + 3.0) * i as f32; N], "step {i} with {x}");
                    ctx.reset();
                }
            });
        }
    });
}

/// Everything a computation needs, passed from thread to thread between its steps.
struct Baton {
    ctx: Context,
    sched: Sched,
    state: State,
    allocator: GraphAllocator,
    backend: Backend,
    builder: WeightsBuilder,
}

impl Baton {
    fn new() -> Self {
        let allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
        let (ctx, sched, state, backend) = (Context::new(), sched(), state(), backend());
        Self { ctx, sched, state, allocator, backend, builder: WeightsBuilder::new() }
    }

    /// Runs step `i` with all objects; every second step keeps the context.
    fn step(mut self, weights: &Weights, i: usize) -> Self {
        let sum = step(&self.ctx, &mut self.sched, weights, &self.state, 1.0);
        assert_eq!(sum, [5.0 * i as f32; N], "step {i}");

        let x = self.ctx.input("x", DType::F32, [N as i64]).unwrap();
        let y = self.ctx.neg(self.ctx.add(x, self.state.tensor("sum").unwrap()).unwrap()).unwrap();
        let graph = self.ctx.graph([y]).unwrap();
        let mut run = self.allocator.alloc(&graph, &mut self.backend).unwrap();
        run.set(x, &[i as f32; N]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [-6.0 * i as f32; N], "step {i}");
        drop(run);
        drop(graph);
        self.builder.tensor(&format!("t{i}"), DType::F32, [1]).unwrap();
        if i.is_multiple_of(2) {
            self.ctx.reset();
        }
        self
    }
}

/// Objects belong to no thread: each is used by one thread, then by the next, while other threads use others.
#[test]
fn objects_move_between_threads() {
    let weights = weights();
    thread::scope(|s| {
        for _ in 0..2 {
            let weights = &weights;
            s.spawn(move || {
                let last = (1..=STEPS).fold(Baton::new(), |baton, i| {
                    thread::scope(|s| s.spawn(move || baton.step(weights, i)).join().unwrap())
                });
                // The last thread drops objects that other threads created.
                let placed = last.builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
                assert_eq!(placed.iter().count(), STEPS, "a tensor of each step");
            });
        }
    });
}

/// Many threads read weights while devices are listed and other weights are created and dropped.
#[test]
fn weights_are_read_by_many_threads() {
    let weights = weights();
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for _ in 0..STEPS {
                    assert_eq!(weights.tensor("b").unwrap().read::<f32>().unwrap(), [3.0; N], "as they were written");
                    assert_eq!(weights.iter().map(Tensor::name).collect::<Vec<_>>(), ["w", "b"], "in order");
                    assert!(!Device::all().unwrap().is_empty(), "there is a CPU");
                    drop(state());
                }
            });
        }
    });
}
