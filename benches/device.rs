//! Throughput of a device: the one in the environment variable `GGML_TEST_DEVICE`, else the CPU (`cargo bench --bench
//! device`). Each line of the output is a JSON object.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "a benchmark that fails panics, and its numbers are small"
)]

use std::time::{Duration, Instant};

use ggml::prelude::*;
use ggml::{GraphAllocator, ops::FlashAttnOptions};
use serde_json::json;
use testkit::device::{cpu, device};

/// Chooses a dimension for a GPU or for a CPU.
fn size(gpu: i64, cpu: i64) -> i64 {
    if device().device_type() == DeviceType::Cpu { cpu } else { gpu }
}

/// The median time of `f` in seconds, over at least half a second and five rounds.
fn seconds(mut f: impl FnMut()) -> f64 {
    f();
    f();
    let (start, mut all) = (Instant::now(), Vec::new());
    while all.len() < 5 || start.elapsed() < Duration::from_millis(500) {
        let round = Instant::now();
        f();
        all.push(round.elapsed().as_secs_f64());
    }
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn print(name: &str, value: f64, unit: &str) {
    println!("{}", json!({ "name": name, "value": value, "unit": unit }));
}

fn weights(dtype: DType, shape: [i64; 2]) -> Weights {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", dtype, shape).unwrap();
    let mut weights = builder.place(device().buffer_type()).unwrap();
    let n = usize::try_from(shape[0] * shape[1]).unwrap();
    let numbers: Vec<f32> = (0..n).map(|i| (i * 7919 % 2003) as f32 / 1000.0 - 1.0).collect();
    weights.set_bytes("w", &dtype.quantize(&numbers, usize::try_from(shape[0]).unwrap(), None).unwrap()).unwrap();
    weights
}

fn transfers() {
    let bytes = usize::try_from(size(1 << 28, 1 << 26)).unwrap();
    let mut builder = WeightsBuilder::new();
    for name in ["a", "b"] {
        builder.tensor(name, DType::I8, [i64::try_from(bytes).unwrap()]).unwrap();
    }
    let state = builder.place_state(device().buffer_type()).unwrap();
    let mut host = vec![1_i8; bytes];
    let gigabytes = bytes as f64 / 1e9;
    print("to the device", gigabytes / seconds(|| state.set("a", &host).unwrap()), "GB/s");
    let mut backend = device().init().unwrap();
    let mut get = || backend.transfers(|queue| queue.get(state.tensor("a")?, &mut host)).unwrap();
    print("from the device", gigabytes / seconds(&mut get), "GB/s");
    let mut copy = || backend.transfers(|queue| queue.copy(state.tensor("a")?, &state, "b")).unwrap();
    print("on the device, copied", gigabytes / seconds(&mut copy), "GB/s");
}

fn products() {
    let mut backend = device().init().unwrap();
    let (k, m) = (size(4096, 1024), size(4096, 1024));
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K] {
        let weights = weights(dtype, [k, m]);
        for n in [1, 512] {
            let ctx = Context::new();
            let x = ctx.input("x", DType::F32, [k, n]).unwrap();
            let y = ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap();
            let graph = ctx.graph([y]).unwrap();
            let mut allocator = GraphAllocator::new(device().buffer_type());
            let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
            memory.set(x, &vec![0.5_f32; usize::try_from(k * n).unwrap()]).unwrap();
            let time = seconds(|| memory.compute().unwrap());
            let name = format!("mul_mat {dtype} [{k}, {m}] by {n} columns");
            print(&name, 2.0 * (k * m * n) as f64 / time / 1e12, "TFLOP/s");
            if n == 1 {
                print(&format!("{name}, weights read"), dtype.row_size(k * m).unwrap() as f64 / time / 1e9, "GB/s");
            }
        }
    }
}

/// Attention with a KV cache, as for prompt processing and for generation.
fn attention() {
    let mut backend = device().init().unwrap();
    let (heads, kv_heads, head, keys) = (32, 8, 128, size(4096, 512));
    for queries in [1, 512] {
        let ctx = Context::new();
        let input = |name, dtype, shape: [i64; 4]| ctx.input(name, dtype, shape).unwrap();
        let q = input("q", DType::F32, [head, queries, heads, 1]);
        let (k, v) =
            (input("k", DType::F16, [head, keys, kv_heads, 1]), input("v", DType::F16, [head, keys, kv_heads, 1]));
        let how = FlashAttnOptions::new(0.088);
        let y = ctx.flash_attn_ext(q, k, v, how).unwrap();
        if !device().supports_op(y).unwrap() {
            println!("{}", json!({ "name": "flash_attn_ext", "unsupported": true }));
            return;
        }
        let graph = ctx.graph([y]).unwrap();
        let mut allocator = GraphAllocator::new(device().buffer_type());
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        memory.set(q, &vec![0.1_f32; usize::try_from(head * queries * heads).unwrap()]).unwrap();
        for t in [k, v] {
            memory.set(t, &vec![half::f16::ONE; usize::try_from(head * keys * kv_heads).unwrap()]).unwrap();
        }
        let time = seconds(|| memory.compute().unwrap());
        let name = format!("flash_attn_ext {queries} queries, {keys} keys");
        print(&name, 4.0 * (head * queries * heads * keys) as f64 / time / 1e12, "TFLOP/s");
    }
}

/// The overhead of launching a tiny operation.
fn launches() {
    const OPS: usize = 1000;
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64]).unwrap();
    let y = (0..OPS).fold(x, |y, _| ctx.add(y, x).unwrap());
    let graph = ctx.graph([y]).unwrap();
    let mut backend = device().init().unwrap();
    let mut allocator = GraphAllocator::new(device().buffer_type());
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[0.0_f32; 64]).unwrap();
    let time = seconds(|| memory.compute().unwrap());
    print("an operation of 64 elements", time / OPS as f64 * 1e6, "us");
    let mut sched = Sched::builder().backend(device().init().unwrap()).backend(cpu()).build().unwrap();
    drop(memory);
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[0.0_f32; 64]).unwrap();
    let time = seconds(|| run.compute().unwrap());
    print("an operation of 64 elements, by the scheduler", time / OPS as f64 * 1e6, "us");
}

fn main() {
    let device = device();
    let memory = device.memory().unwrap();
    let features: Vec<_> = device.registry().unwrap().features().unwrap();
    let features: Vec<_> = features.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    println!(
        "{}",
        json!({
            "device": device.name(),
            "description": device.description(),
            "memory": memory.total,
            "capabilities": format!("{:?}", device.capabilities().unwrap()),
            "features": features,
        })
    );
    transfers();
    products();
    attention();
    launches();
}
