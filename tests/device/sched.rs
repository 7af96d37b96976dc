//! Graphs that are split between the device and the CPU.

use ggml::SchedBuilder;
use ggml::prelude::*;

use crate::{cpu, device, in_host_memory, sample};

const WIDTH: usize = 64;
const LAYERS: usize = 6;

/// Layer weights, alternating between the device and the CPU.
fn weights(on: [Device; 2]) -> Weights {
    let mut builder = WeightsBuilder::new();
    let name = |i| format!("w{i}");
    for i in 0..LAYERS {
        builder.tensor(&name(i), DType::F32, [WIDTH as i64, WIDTH as i64]).unwrap();
    }
    let mut next = 0;
    let mut weights = builder
        .place(|_: &LeafInfo| {
            next += 1;
            on[(next + 1) % 2]
        })
        .unwrap();
    for i in 0..LAYERS {
        let data: Vec<_> = sample(WIDTH * WIDTH, i as u64).iter().map(|x| x * 0.2).collect();
        weights.set(&name(i), &data).unwrap();
    }
    weights
}

fn network<'c>(ctx: &'c Context, weights: &'c Weights, x: Tensor<'c>) -> Tensor<'c> {
    (0..LAYERS).fold(x, |h, i| ctx.tanh(ctx.mul_mat(weights.tensor(&format!("w{i}")).unwrap(), h).unwrap()).unwrap())
}

fn compute(builder: SchedBuilder, on: [Device; 2], rounds: usize) -> (Vec<Vec<f32>>, usize, usize) {
    let weights = weights(on);
    let mut sched = builder.build().unwrap();
    let (mut results, mut splits, mut copies) = (Vec::new(), 0, 0);
    for round in 0..rounds {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [WIDTH as i64, 3]).unwrap();
        let y = network(&ctx, &weights, x);
        let graph = ctx.graph([y]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &sample(WIDTH * 3, round as u64)).unwrap();
        run.compute().unwrap();
        results.push(run.get(y).unwrap());
        (splits, copies) = (run.n_splits(), run.n_copies());
    }
    (results, splits, copies)
}

fn both() -> SchedBuilder {
    Sched::builder().backend(device().init().unwrap()).backend(cpu()).op_offload(false)
}

fn assert_close(got: &[Vec<f32>], want: &[Vec<f32>]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-2), "{got:?} instead of {want:?}");
    }
}

#[test]
fn sched_on_two_devices_equals_one() {
    let host = cpu().device();
    let (alone, ..) = compute(Sched::builder().backend(cpu()), [host, host], 6);
    let (split, splits, copies) = compute(both(), [device(), host], 6);
    assert_close(&split, &alone);
    assert_eq!(copies, 1);
    assert_eq!(splits, if in_host_memory() { 1 } else { LAYERS }, "a part for each change of the device");
    // Devices wait for each other's events; the host waits for none.
    let (split, _, copies) = compute(both().parallel(true), [device(), host], 9);
    let (alone, ..) = compute(Sched::builder().backend(cpu()), [host, host], 9);
    assert_close(&split, &alone);
    assert_eq!(copies, 4);
}

#[test]
fn sched_on_the_device_alone_equals_the_cpu() {
    let host = cpu().device();
    let (alone, ..) = compute(Sched::builder().backend(cpu()), [host, host], 2);
    let (there, splits, _) = compute(both(), [device(), device()], 2);
    assert_close(&there, &alone);
    assert_eq!(splits, 1);
}

/// The CPU's results are in host memory that the device copies from fast.
#[test]
fn sched_accepts_host_buffer_type_for_the_cpu() {
    let Some(memory) = device().host_buffer_type() else {
        assert!(!device().capabilities().unwrap().host_buffer);
        eprintln!("unsupported: host memory of its own");
        return;
    };
    let host = cpu().device();
    let builder = || Sched::builder().backend(device().init().unwrap()).backend_with(cpu(), memory).op_offload(false);
    let (alone, ..) = compute(Sched::builder().backend(cpu()), [host, host], 3);
    assert_close(&compute(builder(), [device(), host], 3).0, &alone);
}

/// Large products with weights in host memory are offloaded to a GPU, which receives the weights each time.
#[test]
fn large_mul_mat_is_offloaded_to_the_device() {
    const N: usize = 512;
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F16, [256, 128]).unwrap();
    let mut weights = builder.place(cpu().device().buffer_type()).unwrap();
    weights.set_bytes("w", &DType::F16.quantize(&sample(256 * 128, 1), 256, None).unwrap()).unwrap();
    let data = sample(256 * N, 2);
    let run = |op_offload| {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [256, N as i64]).unwrap();
        let y = ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let backends = Sched::builder().backend(device().init().unwrap()).backend(cpu());
        let mut sched = backends.op_offload(op_offload).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        let on = run.backend_of(y).unwrap().device();
        run.set(x, &data).unwrap();
        run.compute().unwrap();
        (run.get::<f32>(y).unwrap(), on, device().offloads(y).unwrap())
    };
    let ((with, on, wanted), (without, ..)) = (run(true), run(false));
    eprintln!("taken over: {wanted}");
    assert_eq!(on == device(), wanted || in_host_memory(), "on {on}");
    for (a, b) in with.iter().zip(&without) {
        assert!((a - b).abs() < 0.05 * b.abs().max(1.0), "{a} instead of {b}");
    }
}

#[test]
fn compute_with_observes_results_on_the_device() {
    let weights = weights([device(), cpu().device()]);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [WIDTH as i64, 3]).unwrap();
    let y = network(&ctx, &weights, x);
    let graph = ctx.graph([y]).unwrap();
    let mut sched = both().build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &sample(WIDTH * 3, 1)).unwrap();
    for _ in 0..3 {
        let beside = run.compute_async(|| 7).unwrap();
        assert_eq!(beside, 7);
    }
    let profile = run.profile().unwrap();
    eprintln!("{profile}");
    assert!(run.get::<f32>(y).unwrap().iter().all(|v| v.is_finite()));
}
