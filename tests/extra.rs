//! Repacked weights (H27). The supported types depend on the processor: this test expects AVX2, the default of x86-64
//! builds.

#![cfg(target_arch = "x86_64")]
#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "small numbers")]

use ggml::opt::{LossType, OptContext, OptParams};
use ggml::prelude::*;
use ggml::{BufferType, Error, GraphAllocator, Pieces, Threads, ops::CustomOptions};

/// The buffer type that interleaves rows; every CPU backend with AVX2 has it.
fn repack() -> BufferType {
    let extra = Device::cpu().unwrap().extra_buffer_types().unwrap();
    extra.into_iter().find(|m| m.name() == "CPU_REPACK").unwrap()
}

fn plain() -> BufferType {
    Device::cpu().unwrap().buffer_type()
}

/// Pseudorandom values in -1 to 1.
fn sample(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729 + i * i % 131) % 2001) as f32 / 1000.0 - 1.0).collect()
}

/// One tensor `w` of this type and shape, and its decoded values.
fn weights(memory: BufferType, dtype: DType, shape: [usize; 3]) -> (Weights, Vec<f32>) {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", dtype, shape.map(|n| n as i64)).unwrap();
    let mut weights = builder.place(memory).unwrap();
    let bytes = dtype.quantize(&sample(shape.iter().product(), 3), shape[0], None).unwrap();
    weights.set_bytes("w", &bytes).unwrap();
    (weights, dtype.dequantize(&bytes).unwrap())
}

fn sched(threads: usize) -> Sched {
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(Threads::new(threads).with_all(true)).unwrap();
    Sched::builder().backend(backend).build().unwrap()
}

/// Rounding to 8-bit blocks changes a value in -1 to 1 by at most 1/254.
fn assert_close(got: &[f32], want: &[f64], k: usize, context: &str) {
    assert_eq!(got.len(), want.len(), "{context}");
    let tolerance = k as f64 / 254.0 + 1e-4;
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(got) - want).abs() <= tolerance, "{context}: {got} instead of {want} at {i}");
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

const TYPES: [DType; 9] = [
    DType::Q4_0,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::MXFP4,
    DType::Q4_1,
];

#[test]
fn repacked_mul_mat_equals_plain_rust() {
    let held: Vec<_> = TYPES.into_iter().filter(|&t| repack().holds(t, [256, 8]).unwrap()).collect();
    assert!(held.contains(&DType::Q4_0) && held.contains(&DType::Q4_K), "{held:?}");
    for dtype in held {
        for (k, m, n, planes) in [(256, 8, 1, 1), (256, 24, 3, 1), (512, 16, 4, 2), (256, 40, 9, 3), (768, 8, 6, 1)] {
            let (weights, w) = weights(repack(), dtype, [k, m, 1]);
            let numbers = sample(k * n * planes, 5);
            let want: Vec<_> = numbers.chunks(k).flat_map(|x| w.chunks(k).map(move |row| dot(row, x))).collect();
            for threads in [1, 2, 3] {
                let ctx = Context::new();
                let x = ctx.input("x", DType::F32, [k, n, planes].map(|n| n as i64)).unwrap();
                let y = ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap();
                let graph = ctx.graph([y]).unwrap();
                let context = format!("{dtype} {k} {m} {n} {planes}, {threads} threads");
                let mut sched = sched(threads);
                let mut run = sched.alloc(&graph).unwrap();
                run.set(x, &numbers).unwrap();
                run.compute().unwrap();
                assert_close(&run.get::<f32>(y).unwrap(), &want, k, &context);
                drop(run);

                let mut allocator = GraphAllocator::new(plain());
                let mut backend = Backend::cpu().unwrap();
                backend.set_threads(Threads::new(threads).with_all(true)).unwrap();
                let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
                memory.set(x, &numbers).unwrap();
                memory.compute().unwrap();
                assert_close(&memory.get::<f32>(y).unwrap(), &want, k, &context);
            }
        }
    }
}

#[test]
fn repacked_mul_mat_id_equals_plain_rust() {
    let (k, m, n, used, tokens) = (64, 16, 4, 2, 5);
    let (weights, w) = weights(repack(), DType::Q4_0, [k, m, n]);
    let ids: Vec<i32> = (0..tokens).flat_map(|t| [t % n, (t + 3) % n]).map(|i| i as i32).collect();
    let numbers = sample(k * tokens, 5);
    for threads in [1, 2, 3] {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [k as i64, 1, tokens as i64]).unwrap();
        let which = ctx.input("ids", DType::I32, [used as i64, tokens as i64]).unwrap();
        let y = ctx.mul_mat_id(weights.tensor("w").unwrap(), x, which).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut sched = sched(threads);
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &numbers).unwrap();
        run.set(which, &ids).unwrap();
        run.compute().unwrap();
        let expert = |i: i32| w.chunks(k * m).nth(i as usize).unwrap();
        let want: Vec<_> = ids
            .iter()
            .enumerate()
            .flat_map(|(e, &i)| expert(i).chunks(k).map(move |row| (row, e / used)))
            .map(|(row, token)| dot(row, &numbers[token * k..][..k]))
            .collect();
        assert_close(&run.get::<f32>(y).unwrap(), &want, k, &format!("{threads} threads"));
    }
}

/// The kernel has room for each token only once per expert.
#[test]
fn h27_repacked_mul_mat_id_requires_distinct_experts() {
    let (weights, _) = weights(repack(), DType::Q4_0, [32, 8, 4]);
    let experts = weights.tensor("w").unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32, 1, 3]).unwrap();
    let which = ctx.input("ids", DType::I32, [2, 3]).unwrap();
    let graph = ctx.graph([ctx.mul_mat_id(experts, x, which).unwrap()]).unwrap();
    let mut sched = sched(2);
    let mut run = sched.alloc(&graph).unwrap();
    let refused = run.set(which, &[0, 1, 3, 3, 0, 1]);
    assert!(matches!(refused, Err(Error::Repeated { position: 3, value: 3, .. })), "{refused:?}");
    assert!(matches!(run.set(which, &[0, 1, 4, 3, 0, 1]), Err(Error::Index { .. })), "an index beyond the experts");
    run.set(which, &[0, 1, 3, 0, 0, 1]).unwrap();
    drop(run);

    // Views that span rows may name the same expert twice.
    let sorted = ctx.top_k(ctx.input("scores", DType::F32, [4, 3]).unwrap(), 2).unwrap();
    ctx.mul_mat_id(experts, x, sorted).unwrap();
    let across = ctx.transpose(ctx.reshape(sorted, [3, 2]).unwrap()).unwrap();
    let refused = ctx.mul_mat_id(experts, x, across);
    assert!(matches!(refused, Err(Error::Shape { .. })), "{refused:?}");
}

#[test]
fn h27_repack_holds_only_what_it_can_multiply() {
    let memory = repack();
    assert!(memory.is_extra().unwrap() && !plain().is_extra().unwrap());
    assert!(!memory.is_host(), "nobody else can make sense of it");
    for (dtype, shape, held) in [
        (DType::Q4_0, [64, 8, 1, 1], true),
        (DType::Q4_0, [64, 16, 3, 1], true),
        (DType::Q4_0, [64, 7, 1, 1], false),
        (DType::Q4_0, [64, 1, 1, 1], false),
        (DType::Q4_0, [64, 8, 1, 2], false),
        (DType::Q4_0, [64, 8, 2, 2], false),
        (DType::Q4_0, [1 << 30, 1 << 10, 1, 1], false),
        (DType::F32, [64, 8, 1, 1], false),
        (DType::F16, [64, 8, 1, 1], false),
        (DType::I32, [64, 8, 1, 1], false),
        (DType::Q5_0, [64, 8, 1, 1], false),
    ] {
        assert_eq!(memory.holds(dtype, shape).unwrap(), held, "{dtype} {shape:?}");
        if !held && shape[0] < 1000 {
            let mut builder = WeightsBuilder::new();
            builder.tensor("w", dtype, shape).unwrap();
            let refused = builder.place(memory);
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{dtype} {shape:?}: {refused:?}");
        }
        assert!(plain().holds(dtype, shape).unwrap(), "plain memory takes everything");
    }
    assert!(matches!(memory.holds(DType::Q4_0, [33, 8]), Err(Error::Shape { .. })), "half a block");
    assert!(matches!(memory.holds(DType::Q4_0, [0, 8]), Err(Error::Shape { .. })));

    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::Q4_0, [64, 8]).unwrap();
    assert!(matches!(builder.place_state(memory), Err(Error::Unsupported { .. })), "a state is written to");

    let ctx = Context::new();
    let graph = ctx.graph([ctx.neg(ctx.input("x", DType::F32, [4]).unwrap()).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(memory);
    let result = allocator.alloc(&graph, &mut Backend::cpu().unwrap()).map(drop);
    assert!(matches!(result, Err(Error::Unsupported { .. })), "results are read and written: {result:?}");
    assert!(matches!(allocator.reserve(&graph), Err(Error::Unsupported { .. })));
}

#[test]
fn h27_repacked_weights_are_set_whole_and_never_read() {
    let (mut weights, _) = weights(repack(), DType::Q4_0, [32, 8, 1]);
    let packed = |e: ggml::Result<()>, what: &str| {
        assert!(matches!(e, Err(Error::Packed { .. })), "{what}: {e:?}");
    };
    packed(weights.read_bytes("w").map(drop), "read_bytes");
    assert!(weights.tensor("w").unwrap().read::<f32>().is_err(), "its type is not even f32");
    packed(weights.fill_bytes("w", 0), "fill");
    let pieces = Pieces { offset: 0, len: 4, count: 1, step: 4, data_step: 4 };
    packed(weights.set_2d("w", pieces, &[0_i8; 4]), "set_2d");
    packed(weights.read_2d("w", pieces, &mut [0_i8; 4]), "read_2d");
    assert!(matches!(weights.set_bytes("w", &[0; 17]), Err(Error::Length { .. })), "a part");

    let (other, _) = self::weights(plain(), DType::Q4_0, [32, 8, 1]);
    packed(weights.copy("w", other.tensor("w").unwrap()), "a copy into it");
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::Q4_0, [32, 8]).unwrap();
    let state = builder.place_state(plain()).unwrap();
    packed(state.copy("w", weights.tensor("w").unwrap()), "a copy from it");

    // It can be set again from bytes at any address, even an odd one.
    let mut bytes = vec![0];
    bytes.extend(DType::Q4_0.quantize(&[0.5; 256], 32, None).unwrap());
    weights.set_bytes("w", &bytes[1..]).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32]).unwrap();
    let w = weights.tensor("w").unwrap();
    let y = ctx.mul_mat(w, x).unwrap();
    let graph = ctx.graph([y, w]).unwrap();
    let mut sched = sched(1);
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 32]).unwrap();
    run.compute().unwrap();
    assert_close(&run.get::<f32>(y).unwrap(), &[16.0; 8], 32, "set again");
    packed(run.get_bytes(w).map(drop), "a leaf of a graph");
}

#[test]
fn h27_repacked_weights_are_only_the_first_operand_of_products() {
    let (weights, _) = weights(repack(), DType::Q4_0, [32, 32, 1]);
    let w = weights.tensor("w").unwrap();
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    let row = of(DType::F32, [32, 1]);
    for (what, built) in [
        ("view", ctx.view(w, [32, 8], [18, 144, 144], 0)),
        ("reshape", ctx.reshape(w, [32, 32])),
        ("permute", ctx.permute(w, [0, 2, 1, 3])),
        ("get_rows", ctx.get_rows(w, of(DType::I32, [1, 1]))),
        ("cast", ctx.cast(w, DType::F32)),
        ("cont", ctx.cont(w)),
        ("dup", ctx.dup(w)),
        ("cpy", ctx.cpy(w, ctx.neg(of(DType::F32, [32, 32])).unwrap())),
        ("add", ctx.add(w, row)),
        ("out_prod", ctx.out_prod(w, of(DType::F32, [32, 32]))),
        ("second operand", ctx.mul_mat(of(DType::F32, [32, 4]), w)),
        ("both operands", ctx.mul_mat(w, w)),
    ] {
        assert!(matches!(built, Err(Error::Packed { .. })), "{what}: {built:?}");
    }
    let written = ctx.cpy(of(DType::Q4_0, [32, 32]), w);
    assert!(matches!(written, Err(Error::Frozen { .. })), "{written:?}");
    let closure = ctx.custom::<f32>(&[w], [32, 32], CustomOptions::new(), |_, _| ());
    assert!(closure.is_err(), "{closure:?}");
}

/// The device claims support for more than its kernels compute correctly.
#[test]
fn h27_repacked_products_check_the_second_operand() {
    let (matrix, _) = weights(repack(), DType::Q4_0, [32, 8, 1]);
    let (experts, _) = weights(repack(), DType::Q4_0, [32, 8, 2]);
    let (w, e) = (matrix.tensor("w").unwrap(), experts.tensor("w").unwrap());
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let gaps = ctx.view(of([40, 8, 1, 1]), [32, 8], [160, 1280, 1280], 0).unwrap();
    let swapped = ctx.transpose(of([8, 32, 1, 1])).unwrap();
    let half = ctx.input("h", DType::F16, [32, 8]).unwrap();
    let ids = ctx.input("ids", DType::I32, [1, 8]).unwrap();
    let mut sched = sched(2);
    for (what, y) in [
        ("rows with gaps", ctx.mul_mat(w, gaps)),
        ("columns", ctx.mul_mat(w, swapped)),
        ("f16", ctx.mul_mat(w, half)),
        ("four dimensions", ctx.mul_mat(w, of([32, 8, 1, 2]))),
        ("an expert", ctx.mul_mat(e, of([32, 8, 2, 1]))),
        ("a matrix as experts", ctx.mul_mat_id(w, of([32, 1, 8, 1]), ids)),
        ("columns for experts", ctx.mul_mat_id(e, ctx.permute(of([8, 32, 1, 1]), [2, 0, 1, 3]).unwrap(), ids)),
    ] {
        let graph = ctx.graph([y.unwrap()]).unwrap();
        let refused = sched.alloc(&graph);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{what}: {refused:?}");
    }
}

#[test]
fn repacked_and_plain_weights_work_together() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("packed", DType::Q4_0, [32, 8]).unwrap();
    builder.tensor("plain", DType::F32, [8, 2]).unwrap();
    let mut weights =
        builder.place(|leaf: &LeafInfo| if leaf.name() == "packed" { repack() } else { plain() }).unwrap();
    weights.set_bytes("packed", &DType::Q4_0.quantize(&[1.0; 256], 32, None).unwrap()).unwrap();
    weights.set("plain", &[0.5_f32; 16]).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32]).unwrap();
    let h = ctx.mul_mat(weights.tensor("packed").unwrap(), x).unwrap();
    let y = ctx.mul_mat(weights.tensor("plain").unwrap(), h).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched(2);
    for again in 0..3 {
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[1.0_f32; 32]).unwrap();
        run.compute().unwrap();
        assert_close(&run.get::<f32>(y).unwrap(), &[128.0; 2], 32, &format!("two layers, {again}"));
    }
}

#[cfg(feature = "rpc")]
#[test]
fn h27_repacked_products_run_only_on_their_device() {
    use ggml::rpc;
    let server = rpc::Server::builder().start().unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let remote = connection.devices()[0];
    assert!(remote.extra_buffer_types().unwrap().is_empty(), "the protocol knows none");
    let (weights, w) = weights(repack(), DType::Q4_0, [32, 8, 1]);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32]).unwrap();
    let h = ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap();
    let y = ctx.neg(h).unwrap();
    let graph = ctx.graph([y]).unwrap();

    let mut sched = Sched::builder().backend(remote.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    let of = |t| run.backend_of(t).unwrap().device();
    assert_eq!(of(h), Device::cpu().unwrap(), "the product runs where its weights are");
    run.set(x, &[1.0_f32; 32]).unwrap();
    run.compute().unwrap();
    let want: Vec<_> = w.chunks(32).map(|row| -dot(row, &[1.0; 32])).collect();
    assert_close(&run.get::<f32>(y).unwrap(), &want, 32, "two devices");
    drop(run);

    let mut allocator = GraphAllocator::new(remote.buffer_type());
    let result = allocator.alloc(&graph, &mut remote.init().unwrap()).map(drop);
    assert!(matches!(result, Err(Error::Unsupported { .. })), "out of its reach: {result:?}");
}

/// Gradients would use the weights in other operations.
#[test]
fn h27_repacked_weights_have_no_gradient() {
    let (weights, _) = weights(repack(), DType::Q4_0, [32, 8, 1]);
    let w = weights.tensor("w").unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("a", DType::F32, [32]).unwrap();
    builder.tensor("b", DType::F32, [8]).unwrap();
    let state = builder.place_state(plain()).unwrap();
    let (a, b) = (state.tensor("a").unwrap(), state.tensor("b").unwrap());
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32, 1]).unwrap();
    let through = ctx.mul_mat(w, ctx.add(x, a).unwrap()).unwrap();
    let beside = ctx.add(ctx.mul_mat(w, x).unwrap(), b).unwrap();
    let mut sched = sched(1);
    let params = || OptParams::new(LossType::MeanSquaredError);

    let mut opt = OptContext::new([a], params()).unwrap();
    let refused = opt.graphs(&ctx, x, through).and_then(|graphs| opt.alloc(&mut sched, &graphs, true).map(drop));
    assert!(matches!(refused, Err(Error::Unsupported { .. } | Error::Packed { .. })), "{refused:?}");

    let mut opt = OptContext::new([b], params()).unwrap();
    let graphs = opt.graphs(&ctx, x, beside).unwrap();
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
    run.set(x, &[1.0_f32; 32]).unwrap();
    run.set(graphs.labels().unwrap(), &[1.0_f32; 8]).unwrap();
    run.eval(None).unwrap();
}

/// The kernels count the blocks of a matrix with 32-bit integers.
#[test]
fn h109_repacked_mul_mat_counts_blocks_in_32_bits() {
    let (weights, _) = weights(repack(), DType::Q4_0, [2048, 8, 1]);
    let ctx = Context::new();
    let refusal = |rows: i64| {
        let x = ctx.input("x", DType::F32, [2048, rows]).unwrap();
        let graph = ctx.graph([ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap()]).unwrap();
        sched(1).alloc(&graph).map(drop)
    };
    refusal(1 << 10).unwrap();
    let error = refusal(1 << 26).unwrap_err().to_string();
    assert!(error.contains("less than 2^36 numbers"), "{error}");
}

/// A language model's matrix is larger than one chunk of a streamed file.
#[test]
fn h27_stream_repacks_a_large_matrix_as_a_whole() {
    use ggml::gguf::{Reader, Writer};

    let (k, m) = (2048, 4096);
    let mut writer = Writer::new();
    let rows: Vec<f32> = (0..16).flat_map(|i| sample(k, i)).collect();
    let blocks = DType::Q4_0.quantize(&rows, k, None).unwrap();
    // Each tensor has its rows in another order.
    let matrix = |step: usize| -> Vec<u8> {
        (0..m).flat_map(|i| blocks.chunks(blocks.len() / 16).nth(i * step % 16).unwrap().iter().copied()).collect()
    };
    for (name, step) in [("a", 1), ("b", 3)] {
        writer.tensor(name, DType::Q4_0, [k as i64, m as i64], &matrix(step)).unwrap();
    }
    writer.tensor("small", DType::F32, [1], &1.0_f32.to_ne_bytes()).unwrap();
    let file = writer.to_bytes().unwrap();
    assert!(matrix(1).len() > 4 << 20);
    let product = |weights: &Weights, name: &str| {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [k as i64, 2]).unwrap();
        let y = ctx.mul_mat(weights.tensor(name).unwrap(), x).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut sched = sched(2);
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &sample(2 * k, 5)).unwrap();
        run.compute().unwrap();
        run.get::<f32>(y).unwrap()
    };
    let mut reader = Reader::from_stream(std::io::Cursor::new(&file)).unwrap();
    let unpacked = reader.stream(plain(), |_, _| ()).unwrap();
    let mut told = Vec::new();
    let packed = reader
        .stream(
            |leaf: &LeafInfo| if leaf.name() == "small" { plain() } else { repack() },
            |done, total| told.push((done, total)),
        )
        .unwrap();
    for name in ["a", "b"] {
        let want: Vec<f64> = product(&unpacked, name).into_iter().map(f64::from).collect();
        assert_close(&product(&packed, name), &want, k / 16, name);
        assert!(matches!(packed.read_bytes(name), Err(Error::Packed { .. })), "{name} was not repacked");
    }
    assert_eq!(packed.tensor("small").unwrap().read::<f32>().unwrap(), [1.0]);
    let total = 2 * matrix(1).len() as u64 + 4;
    assert_eq!((told.len(), told.last()), (4, Some(&(total, total))));
}
