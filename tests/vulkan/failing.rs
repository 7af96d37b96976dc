//! Failures are errors, and the program can go on.

use std::process::Command;

use ggml::prelude::*;
use ggml::{GraphAllocator, Pieces, ops::SortOrder};
use testkit::bench::Bench;

use crate::beside::distance;
use crate::{REACH, backend, cpu, vulkan};

fn it_works() {
    let ctx = Context::new();
    let bench = Bench::new(&ctx, REACH);
    let y = ctx.add(bench.f32([64, 3]), bench.f32([64, 3])).unwrap();
    let (got, want) = (bench.run(y, &mut backend()).unwrap(), bench.run(y, &mut cpu()).unwrap());
    assert!(distance(&got, &want) < 1e-3);
}

/// Places one tensor with this many rows of 4 KiB.
fn one_tensor(rows: i64) -> ggml::Result<Weights> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [1 << 10, rows]).unwrap();
    builder.place(vulkan().buffer_type())
}

/// The size is where ggml begins another buffer, and no limit of one: the device is asked.
fn vulkan_tensor_beyond_the_buffer_size_is_asked_for() {
    let rows = (vulkan().buffer_type().max_size().unwrap() >> 12) as i64 + 1;
    match one_tensor(rows) {
        Ok(mut weights) => {
            let last =
                Pieces { offset: (rows as usize - 1) << 10, len: 1 << 10, count: 1, step: 1 << 10, data_step: 1 << 10 };
            weights.set_2d("w", last, &[2.5_f32; 1 << 10]).unwrap();
            let mut read = [0.0_f32; 1 << 10];
            weights.read_2d("w", last, &mut read).unwrap();
            assert_eq!(read.to_vec(), [2.5; 1 << 10]);
        }
        Err(error) => assert!(matches!(error, Error::OutOfMemory { .. }), "{error}"),
    }
    it_works();
}

fn vulkan_tensor_beyond_memory_is_an_error() {
    let result = one_tensor(1 << 31);
    assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{result:?}");
    it_works();
}

fn vulkan_graph_beyond_memory_is_an_error() {
    let ctx = Context::new();
    // Each tensor fits alone, but not all together.
    let n = 1_i64 << 24;
    let parts: Vec<_> = (0..400).map(|_| ctx.input("", DType::F32, [n]).unwrap()).collect();
    let sum = parts.iter().skip(1).fold(parts[0], |sum, &x| ctx.add(sum, x).unwrap());
    let graph = ctx.graph([sum]).unwrap();
    let mut allocator = GraphAllocator::new(vulkan().buffer_type());
    let mut sched = Sched::builder().backend(backend()).backend(cpu()).build().unwrap();
    let mut one = backend();
    for _ in 0..2 {
        let result = allocator.alloc(&graph, &mut one);
        assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{result:?}");
        drop(result);
        let result = sched.alloc(&graph).map(drop);
        assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{result:?}");
        it_works();
    }
    let small = ctx.graph([ctx.neg(parts[0]).unwrap()]).unwrap();
    assert!(sched.alloc(&small).is_ok(), "the scheduler goes on");
}

/// The backend allocates memory for a sort during the computation. Runs in a process of its own with little memory.
fn vulkan_out_of_memory_during_computation_is_an_error() {
    const CHILD: &str = "GGML_TEST_LITTLE_MEMORY";
    if std::env::var_os(CHILD).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["vulkan_out_of_memory_during_computation_is_an_error"])
            .env(CHILD, "1")
            .env(crate::VISIBLE, "0")
            .env("GGML_VK_FORCE_MAX_BUFFER_SIZE", "1000000")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [1 << 20]).unwrap();
    assert!(matches!(builder.place(vulkan().buffer_type()), Err(Error::OutOfMemory { .. })));
    let ctx = Context::new();
    let bench = Bench::new(&ctx, REACH);
    let x = bench.f32([66_000]);
    let y = ctx.argsort(x, SortOrder::Asc).unwrap();
    assert!(vulkan().supports_op(y).unwrap(), "the operands fit");
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(vulkan().buffer_type());
    let mut one = backend();
    let mut memory = allocator.alloc(&graph, &mut one).unwrap();
    bench.set(|t, bytes| memory.set_bytes(t, bytes)).unwrap();
    let result = memory.compute();
    assert!(matches!(result, Err(Error::Exception { .. })), "{result:?}");
    assert!(matches!(memory.get::<i32>(y), Err(Error::NotComputed { .. })));
    drop(memory);
    assert!(matches!(one.synchronize(), Err(Error::Poisoned { .. })), "nobody knows what it was doing");
    drop(one);
    it_works();
    let mut sched = Sched::builder().backend(backend()).backend(cpu()).build().unwrap();
    let mut run = sched.alloc_pinned(&graph, &[(y, 0)]).unwrap();
    bench.set(|t, bytes| run.set_bytes(t, bytes)).unwrap();
    assert!(matches!(run.compute(), Err(Error::Exception { .. })));
    drop(run);
    assert!(matches!(sched.alloc(&graph), Err(Error::Poisoned { .. })));
    it_works();
}

/// ggml would assert during the computation, or access other memory.
fn vulkan_refuses_operands_beyond_its_limits() {
    let ctx = Context::new();
    let f32 = |ne: [i64; 4]| ctx.input("", DType::F32, ne).unwrap();
    let shifted = |ne: [i64; 2]| {
        let whole = f32([ne[0] + 1, ne[1], 1, 1]);
        let row = whole.nb()[1];
        ctx.view(whole, ne, [row, row * ne[1] as usize, row * ne[1] as usize], 4).unwrap()
    };
    let many = f32([4, 70_000, 1, 1]);
    let refused = [
        ctx.rms_norm(many, 1e-5).unwrap(),
        ctx.diag_mask_inf(many, 0).unwrap(),
        ctx.top_k(f32([9, 4, 1, 1]), 1).unwrap(),
        ctx.sum(shifted([8, 4])).unwrap(),
        ctx.mul_mat(shifted([8, 4]), f32([8, 2, 1, 1])).unwrap(),
        ctx.argmax(ctx.cont(many).unwrap()).unwrap(),
    ];
    for y in &refused[..5] {
        assert!(!vulkan().supports_op(*y).unwrap(), "{y:?}");
        let graph = ctx.graph([*y]).unwrap();
        let mut allocator = GraphAllocator::new(vulkan().buffer_type());
        let result = allocator.alloc(&graph, &mut backend()).map(drop);
        assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
    }
    assert!(vulkan().supports_op(refused[5]).unwrap());
    assert!(vulkan().supports_op(ctx.soft_max(many).unwrap()).unwrap(), "rows are no limit there");
    it_works();
}

testkit::trials! {
    vulkan_tensor_beyond_the_buffer_size_is_asked_for,
    vulkan_tensor_beyond_memory_is_an_error,
    vulkan_graph_beyond_memory_is_an_error,
    vulkan_out_of_memory_during_computation_is_an_error,
    vulkan_refuses_operands_beyond_its_limits,
}
