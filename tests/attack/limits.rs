//! Letters g and i: what does not fit into memory is an error. In processes of their own, with little address space.

use std::process::Command;

use ggml::prelude::*;
use ggml::{Error, GraphAllocator};

/// Tells a child process from the test that starts it.
const CHILD: &str = "GGML_TEST_ATTACK_CHILD";

/// Runs the test `name` of this program again, with so many KiB of address space. What the parent is to do ends here.
fn limited(name: &str, kib: usize) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let script = format!("ulimit -v {kib} && exec \"$0\" --exact limits::{name} --nocapture --test-threads 1");
    // A thread of `OpenBLAS` that has no memory never ends.
    let output = Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(program)
        .env(CHILD, "1")
        .env("OPENBLAS_NUM_THREADS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it ran");
    false
}

fn cpu() -> Backend {
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(1).unwrap();
    backend
}

/// A chain of so many operations.
fn chain(ctx: &Context, n: usize) -> Result<Tensor<'_>, Error> {
    (0..n).try_fold(ctx.input("x", DType::F32, [1])?, |t, _| ctx.neg(t))
}

/// Letter g.
#[cfg(target_os = "linux")]
#[test]
fn graph_that_exceeds_memory_is_out_of_memory() {
    if !limited("graph_that_exceeds_memory_is_out_of_memory", 1 << 20) {
        return;
    }
    let mut refused = 0;
    let mut backend = cpu();
    for n in [500_000, 1_000_000, 1_500_000] {
        let ctx = Context::new();
        let graph = chain(&ctx, n).and_then(|y| ctx.graph([y]));
        let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
        let done = graph.as_ref().map_err(Clone::clone).and_then(|g| allocator.alloc(g, &mut backend).map(drop));
        match done {
            Ok(()) => {}
            Err(Error::OutOfMemory { .. }) => refused += 1,
            Err(other) => panic!("{n}: {other}"),
        }
    }
    assert!(refused > 0, "not everything fits");
    let ctx = Context::new();
    let graph = ctx.graph([chain(&ctx, 10).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    assert!(allocator.alloc(&graph, &mut backend).is_ok(), "small ones do");
}

/// Letter i.
#[cfg(target_os = "linux")]
#[test]
fn sched_plans_the_next_graph_after_out_of_memory() {
    if !limited("sched_plans_the_next_graph_after_out_of_memory", 1 << 20) {
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let ctx = Context::new();
    let large = ctx.graph([chain(&ctx, 50_000).unwrap()]).unwrap();
    let small = ctx.graph([chain(&ctx, 10).unwrap()]).unwrap();
    let before = threads();
    let mut alone = Sched::builder().backend(cpu()).build().unwrap();
    assert!(alone.alloc(&large).is_ok(), "one backend needs no tables of the C scheduler");
    drop(alone);
    for i in 0..10 {
        let mut sched = Sched::builder().backend(cpu()).parallel(true).build().unwrap();
        let error = sched.alloc(&large).map(drop).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{i}: {error}");
        assert!(sched.alloc(&small).is_ok(), "{i}: the scheduler is as good as new");
    }
    assert_eq!(threads(), before);
}

/// Tries ever larger sizes until one does not fit. `f` gets a number of elements; what it returns must be an error then.
#[cfg(target_os = "linux")]
fn until_out_of_memory(f: impl Fn(usize) -> Result<(), Error>) {
    let mut n = 1 << 21;
    loop {
        match f(n) {
            Ok(()) => n += n / 3 / 256 * 256,
            Err(Error::OutOfMemory { .. }) => return,
            Err(other) => panic!("{n}: {other}"),
        }
    }
}

/// Conversions and comparisons aborted where there was no memory for them.
#[cfg(target_os = "linux")]
#[test]
fn conversions_and_comparisons_report_out_of_memory() {
    if !limited("conversions_and_comparisons_report_out_of_memory", 1 << 17) {
        return;
    }
    let no_memory = || Error::OutOfMemory { what: "the test".into(), bytes: None, log: Box::default() };
    let numbers = |n: usize, value: f32| {
        let mut list = Vec::new();
        list.try_reserve_exact(n).map_err(|_| no_memory())?;
        list.resize(n, value);
        Ok::<_, Error>(list)
    };
    until_out_of_memory(|n| {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(4 * n).map_err(|_| no_memory())?;
        bytes.resize(4 * n, 0_u8);
        DType::F32.dequantize(&bytes).map(drop)
    });
    // Too small for the scale of a block, so that there is a copy.
    until_out_of_memory(|n| DType::Q8_0.quantize(&numbers(n, 1e-42)?, n, None).map(drop));
    until_out_of_memory(|n| {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [i64::try_from(n).unwrap()])?;
        let graph = ctx.graph([ctx.neg(x)?])?;
        let mut allocator = GraphAllocator::new(Device::cpu()?.buffer_type());
        let mut backend = cpu();
        let mut run = allocator.alloc(&graph, &mut backend)?;
        run.set(x, &numbers(n, 1.0)?)?;
        run.compare(&mut cpu(), ggml::run::Compare::new()).map(drop)
    });
}
