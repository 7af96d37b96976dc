//! Compares two devices operation by operation: CPUs, or the device in the environment variable `GGML_TEST_DEVICE` with the CPU.

#![cfg(test)]
#![allow(clippy::cast_precision_loss, reason = "small numbers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ggml::prelude::*;
use ggml::run::{Compare, Comparison};
use ggml::{
    BufferType, Error, GraphAllocator, Threads,
    ops::{CustomOptions, FlashAttnOptions},
};
use testkit::device::here;

fn cpu() -> Backend {
    Backend::cpu().unwrap()
}

fn memory() -> GraphAllocator {
    GraphAllocator::new(Device::cpu().unwrap().buffer_type())
}

fn one_task() -> CustomOptions {
    CustomOptions::new().with_n_tasks(1)
}

fn sample(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 2003) as f32 / 1000.0 - 1.0).collect()
}

struct Net {
    weights: Weights,
    cache: State,
}

/// A mix of features: quantised weights, a KV cache that is written to, views, sorts, several result types, and reused
/// memory.
impl Net {
    fn new(memory: BufferType) -> Self {
        let mut builder = WeightsBuilder::new();
        builder.tensor("up", DType::Q8_0, [64, 32]).unwrap();
        builder.tensor("norm", DType::F32, [32]).unwrap();
        let mut weights = builder.place(memory).unwrap();
        weights.set_bytes("up", &DType::Q8_0.quantize(&sample(64 * 32), 64, None).unwrap()).unwrap();
        weights.set("norm", &sample(32)).unwrap();
        let mut builder = WeightsBuilder::new();
        builder.tensor("cache", DType::F32, [32, 8]).unwrap();
        builder.tensor("count", DType::F32, [1]).unwrap();
        Self { weights, cache: builder.place_state(memory).unwrap() }
    }

    fn outputs<'c>(&'c self, ctx: &'c Context, x: Tensor<'c>, rows: Tensor<'c>) -> [Tensor<'c>; 5] {
        let h = ctx.mul_mat(self.weights.tensor("up").unwrap(), x).unwrap();
        let h = (0..10).fold(h, |h, _| ctx.scale(ctx.neg(h).unwrap(), 1.1).unwrap());
        let h = ctx.mul(ctx.rms_norm(h, 1e-5).unwrap(), self.weights.tensor("norm").unwrap()).unwrap();
        let cache = self.cache.tensor("cache").unwrap();
        let part = ctx.view(cache, [32, 4], [256, 1024, 1024], 128).unwrap();
        let kept = ctx.cpy(h, part).unwrap();
        let picked = ctx.get_rows(ctx.cont(kept).unwrap(), rows).unwrap();
        let best = ctx.top_k(picked, 4).unwrap();
        let half = ctx.cast(ctx.soft_max(picked).unwrap(), DType::F16).unwrap();
        let blocks = ctx.cast(picked, DType::Q8_0).unwrap();
        let log = ctx.log(ctx.sgn(picked).unwrap()).unwrap();
        let one = self.cache.tensor("count").unwrap();
        let counted = ctx.add_inplace(one, ctx.fill(one, 1.0).unwrap()).unwrap();
        [best, half, blocks, log, counted]
    }
}

fn compare_net(backend: &mut Backend, other: &mut Backend) -> Comparison {
    let memory = backend.device().buffer_type();
    let net = Net::new(memory);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64, 4]).unwrap();
    let rows = ctx.input("rows", DType::I32, [3]).unwrap();
    let outputs = net.outputs(&ctx, x, rows);
    let graph = ctx.graph(outputs).unwrap();
    let mut allocator = GraphAllocator::new(memory);
    let mut memory = allocator.alloc(&graph, backend).unwrap();
    memory.set(x, &sample(64 * 4)).unwrap();
    memory.set(rows, &[3, 0, 3]).unwrap();
    let comparison = memory.compare(other, Compare::new()).unwrap();
    assert_eq!(net.cache.tensor("count").unwrap().read::<f32>().unwrap(), [1.0], "a state is changed once");

    let compared = memory.get::<f32>(outputs[3]).unwrap();
    let blocks = memory.get::<i32>(outputs[0]).unwrap();
    memory.compute().unwrap();
    let same = compared.iter().zip(memory.get::<f32>(outputs[3]).unwrap()).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(same, "what was compared is what is computed");
    assert_eq!(memory.get::<i32>(outputs[0]).unwrap(), blocks);

    let views = ["view", "reshape", "permute", "transpose"];
    let run: Vec<_> = graph.nodes().filter(|t| !views.contains(&t.op().to_lowercase().as_str())).collect();
    assert_eq!(comparison.nodes.len(), run.len(), "all that is no view");
    for (node, t) in comparison.nodes.iter().zip(run) {
        assert_eq!((node.op.to_uppercase(), node.shape, node.dtype), (t.op(), t.shape(), t.dtype()));
    }
    comparison
}

fn assert_equal(comparison: &Comparison) {
    assert!(comparison.agrees(), "{comparison}");
    for node in &comparison.nodes {
        assert_eq!((node.max_abs, node.nmse, node.mismatch, node.deviates), (0.0, 0.0, None, false), "{comparison}");
    }
}

#[test]
fn compare_finds_no_difference_of_a_device_to_itself() {
    let mut other = cpu();
    other.set_threads(Threads::new(3).with_all(true)).unwrap();
    let mut device = here().init().unwrap();
    assert_equal(&compare_net(&mut device, &mut other));
    assert_equal(&compare_net(&mut other, &mut device));
}

#[cfg(feature = "rpc")]
#[test]
fn compare_finds_no_difference_to_a_server() {
    use ggml::rpc;
    let server = rpc::Server::builder().start().unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut remote = connection.devices()[0].init().unwrap();
    assert_equal(&compare_net(&mut cpu(), &mut remote));
    assert_equal(&compare_net(&mut remote, &mut cpu()));

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), |_, _| {}).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = memory();
    let mut backend = cpu();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[1.0_f32; 4]).unwrap();
    let refused = memory.compare(&mut remote, Compare::new());
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "closures stay here: {refused:?}");
}

/// The fast kernels round differently from the reference ones.
#[test]
fn compare_measures_the_rounding_of_reference_kernels() {
    let ctx = Context::new();
    let of = |name, shape: [i64; 4]| ctx.input(name, DType::F32, shape).unwrap();
    let (q, k, v) = (of("q", [64, 80, 2, 1]), of("k", [64, 96, 2, 1]), of("v", [64, 96, 2, 1]));
    let how = FlashAttnOptions::new(0.125);
    let y = ctx.flash_attn_ext(q, k, v, how).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = memory();
    let mut reference = cpu();
    let mut compared = |by_reference| {
        reference.set_use_ref(by_reference).unwrap();
        let mut run = allocator.alloc(&graph, &mut reference).unwrap();
        run.set(q, &sample(64 * 80 * 2)).unwrap();
        run.set(k, &sample(64 * 96 * 2)).unwrap();
        run.set(v, &sample(64 * 96 * 2)).unwrap();
        run.compare(&mut cpu(), Compare::new()).unwrap()
    };
    let comparison = compared(true);
    assert!(comparison.agrees(), "{comparison}");
    assert!(comparison.nodes[0].max_abs > 0.0, "other code than that of tiles: {comparison}");
    assert_equal(&compared(false));
}

/// A cast has itself as a source, and kernels for quantised types read that source.
#[test]
fn compare_computes_casts() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::Q8_0, [32, 3]).unwrap();
    let mut weights = builder.place(here()).unwrap();
    weights.set_bytes("w", &DType::Q8_0.quantize(&sample(96), 32, None).unwrap()).unwrap();
    let ctx = Context::new();
    let y = ctx.cast(weights.tensor("w").unwrap(), DType::F32).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(here().buffer_type());
    let mut backend = here().init().unwrap();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    assert_equal(&memory.compare(&mut cpu(), Compare::new()).unwrap());
}

/// Returns `x`; on the second call (for the second device) adds 3 to element 5.
fn faulty<'c>(ctx: &'c Context, x: Tensor<'c>) -> Tensor<'c> {
    let calls = Arc::new(AtomicUsize::new(0));
    ctx.map_custom1::<f32>(x, one_task(), move |out, x| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        for (i, row) in out {
            row.copy_from_slice(x.row(i));
            if i == [1, 0, 0] && call % 2 == 1 {
                row[1] += 3.0;
            }
        }
    })
    .unwrap()
}

fn compare_faulty(how: Compare) -> (Comparison, bool) {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 2]).unwrap();
    let before = ctx.scale(x, 2.0).unwrap();
    let wrong = faulty(&ctx, before).named("wrong").unwrap();
    let after = ctx.neg(ctx.reshape(wrong, [8]).unwrap()).unwrap();
    let graph = ctx.graph([after]).unwrap();
    let mut allocator = memory();
    let mut backend = cpu();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[1.0_f32; 8]).unwrap();
    let comparison = memory.compare(&mut cpu(), how).unwrap();
    let computed = memory.get::<f32>(after);
    if let Ok(y) = &computed {
        assert_eq!(*y, [-2.0; 8], "of the first device");
    }
    (comparison, computed.is_ok())
}

/// In ggml a cast is its own second operand, whose strides some kernels read.
#[test]
fn compare_computes_casts_of_quantised_inputs() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::Q8_0, [64, 3]).unwrap();
    let graph = ctx.graph([ctx.cast(x, DType::F32).unwrap()]).unwrap();
    let mut memory = GraphAllocator::new(here().buffer_type());
    let mut backend = here().init().unwrap();
    let mut memory = memory.alloc(&graph, &mut backend).unwrap();
    memory.set_bytes(x, &DType::Q8_0.quantize(&sample(64 * 3), 64, None).unwrap()).unwrap();
    assert_equal(&memory.compare(&mut cpu(), Compare::new()).unwrap());
}

#[test]
fn compare_finds_the_first_wrong_node() {
    let how = Compare::new();
    let (comparison, computed) = compare_faulty(how);
    let marks = |c: &Comparison| c.nodes.iter().map(|n| n.deviates).collect::<Vec<_>>();
    assert_eq!(marks(&comparison), [false, true, false], "{comparison}");
    assert!(computed && !comparison.agrees());
    let wrong = comparison.first_deviation().unwrap();
    assert_eq!((wrong.name.as_str(), wrong.position, wrong.max_abs), ("wrong", 1, 3.0));
    let mismatch = wrong.mismatch.unwrap();
    assert_eq!((mismatch.at, mismatch.reference, mismatch.other), ([1, 1, 0, 0], 2.0, 5.0));
    assert!((wrong.nmse - 9.0 / 32.0).abs() < 1e-12, "{}", wrong.nmse);

    let table = comparison.to_string();
    let line = table.lines().find(|line| line.contains("wrong")).unwrap();
    for part in ["1!", "map_custom1", "f32 [4, 2, 1, 1]", "3.000e0", "2.812e-1", "[1, 1, 0, 0]: 5e0 instead of 2e0"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(table.ends_with("(`wrong`) deviate first"), "{table}");

    let how = how.with_apart(false);
    let (comparison, _) = compare_faulty(how);
    assert_eq!(marks(&comparison), [false, true, true], "the next one goes on with it: {comparison}");
    let how = how.with_stop(true);
    let (comparison, computed) = compare_faulty(how);
    assert_eq!(marks(&comparison), [false, true], "{comparison}");
    assert!(!computed, "what was not computed can't be read");
    let (comparison, computed) = compare_faulty(how.with_tolerance(2.0));
    assert!(comparison.agrees() && computed, "{comparison}");
    assert_eq!(comparison.nodes[1].mismatch, None);
    assert!(comparison.to_string().ends_with("no result deviates"));
}

/// A NaN or infinity is a difference only if the other value is not the same.
#[test]
fn compare_counts_nan_and_infinity() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [3]).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let y = ctx
        .map_custom1::<f32>(ctx.log(x).unwrap(), one_task(), move |out, x| {
            let second = calls.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            for (i, row) in out {
                row.copy_from_slice(x.row(i));
                if second {
                    row[1] = f32::INFINITY;
                }
            }
        })
        .unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = memory();
    let mut backend = cpu();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[-1.0_f32, 0.0, 1.0]).unwrap();
    let comparison = memory.compare(&mut cpu(), Compare::new()).unwrap();
    assert!(!comparison.nodes[0].deviates && comparison.nodes[0].max_abs == 0.0, "NaN and -inf twice: {comparison}");
    let wrong = &comparison.nodes[1];
    assert!(wrong.deviates && wrong.max_abs.is_infinite(), "{comparison}");
    assert_eq!(wrong.mismatch.unwrap().at, [1, 0, 0, 0]);
}

#[test]
fn compare_refuses_what_it_cannot_compare() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
    let mut allocator = memory();
    let mut backend = cpu();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    let refused = memory.compare(&mut cpu(), Compare::new());
    assert!(matches!(refused, Err(Error::InputNotSet { .. })), "{refused:?}");
}

/// x86-64 has a repacking buffer type by default.
#[cfg(target_arch = "x86_64")]
#[test]
fn compare_refuses_repacked_weights() {
    let repack = Device::cpu().unwrap().extra_buffer_types().unwrap();
    let repack = repack.into_iter().find(|m| m.name() == "CPU_REPACK").unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::Q4_0, [32, 8]).unwrap();
    let weights = builder.place(repack).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32]).unwrap();
    let mut allocator = memory();
    let graph = ctx.graph([ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap()]).unwrap();
    let mut backend = cpu();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[1.0_f32; 32]).unwrap();
    let refused = memory.compare(&mut cpu(), Compare::new());
    assert!(matches!(refused, Err(Error::Packed { .. })), "{refused:?}");
}

#[test]
fn compare_resumes_the_panic_of_a_closure() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), |_, _| panic!("in the closure")).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = memory();
    let mut backend = cpu();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[1.0_f32; 4]).unwrap();
    let panic =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| memory.compare(&mut cpu(), Compare::new()).map(drop)));
    assert!(panic.is_err());
    assert!(matches!(memory.get::<f32>(y), Err(Error::NotComputed { .. })));
}
