//! BLAS together with the CPU: products of large matrices.

#![cfg(feature = "blas")]
#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
#![allow(clippy::cast_possible_wrap, reason = "small numbers")]

use ggml::prelude::*;
use ggml::{GraphAllocator, Priority, Threads};
use ggml_draw::ToDot as _;

fn blas() -> Device {
    Device::by_name("BLAS").unwrap()
}

fn backend(threads: usize) -> Backend {
    let mut backend = blas().init().unwrap();
    backend.set_threads(threads).unwrap();
    backend
}

/// BLAS has priority, so it gets every operation that it supports.
fn sched(threads: usize) -> Sched {
    Sched::builder().backend(backend(threads)).backend(Backend::cpu().unwrap()).build().unwrap()
}

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 101) % 211) as f32 / 105.0 - 1.0).collect()
}

/// A matrix of `ne` in `dtype`: its bytes, and their decoded values.
fn encoded(dtype: DType, ne: [usize; 4], seed: usize) -> (Vec<u8>, Vec<f32>) {
    let bytes = dtype.quantize(&numbers(ne.iter().product(), seed), ne[0], None).unwrap();
    let rounded = dtype.dequantize(&bytes).unwrap();
    (bytes, rounded)
}

/// `[k, m] x [k, n]`; the first is broadcast over the planes of the second.
fn product(a: &[f32], [k, m, a2, a3]: [usize; 4], b: &[f32], [_, n, b2, b3]: [usize; 4]) -> Vec<f64> {
    let mut out = Vec::new();
    for i3 in 0..b3 {
        for i2 in 0..b2 {
            let (pa, pb) = ((i3 / (b3 / a3)) * a2 + i2 / (b2 / a2), i3 * b2 + i2);
            for j in 0..n {
                for i in 0..m {
                    let (row, column) = (&a[(pa * m + i) * k..][..k], &b[(pb * n + j) * k..][..k]);
                    out.push(row.iter().zip(column).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum());
                }
            }
        }
    }
    out
}

fn assert_close(got: &[f32], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (x, y)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(*x) - y).abs() < 1e-4 * (1.0 + y.abs()), "{what}: {x} for {y} at {i}");
    }
}

fn shape(ne: [usize; 4]) -> [i64; 4] {
    ne.map(|n| n as i64)
}

#[test]
fn blas_device_is_an_accelerator_in_host_memory() {
    let device = blas();
    assert!(Device::all().unwrap().contains(&device));
    assert_eq!(device, Device::by_type(DeviceType::Accelerator).unwrap());
    assert_eq!(device.registry().unwrap().name(), "BLAS");
    if !cfg!(target_vendor = "apple") {
        assert_eq!(device.description(), "OpenBLAS");
    }
    assert!(device.buffer_type().is_host() && device.supports_buffer_type(Device::cpu().unwrap().buffer_type()));
    assert!(!device.capabilities().unwrap().async_compute);
    assert_eq!(Backend::from_spec("blas").unwrap().name(), "BLAS");
    assert!(ggml::sys::BACKENDS.contains(&"blas"));
}

#[test]
fn blas_mul_mat_equals_plain_rust() {
    let shapes = [
        ([64, 48, 1, 1], [64, 33, 1, 1]),
        ([256, 32, 2, 1], [256, 40, 4, 3]),
        ([512, 70, 3, 2], [512, 32, 3, 2]),
        // Enough rows for all threads to convert some.
        ([256, 300, 1, 1], [256, 32, 1, 1]),
    ];
    let types = [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::IQ4_NL];
    for (sa, sb) in shapes {
        for dtype in types.into_iter().filter(|d| (sa[0] as i64) % d.block_size() == 0) {
            let (bytes, a_values) = encoded(dtype, sa, 1);
            let b_values = numbers(sb.iter().product(), 2);
            let expected = product(&a_values, sa, &b_values, sb);
            for threads in [1, 2, 7] {
                let what = format!("{dtype:?} {sa:?} {sb:?} on {threads} threads");
                let ctx = Context::new();
                let a = ctx.input("a", dtype, shape(sa)).unwrap();
                let b = ctx.input("b", DType::F32, shape(sb)).unwrap();
                let y = ctx.mul_mat(a, b).unwrap();
                let graph = ctx.graph([y]).unwrap();
                let mut sched = sched(threads);
                let mut run = sched.alloc(&graph).unwrap();
                assert_eq!(run.backend_of(y).unwrap().name(), "BLAS", "{what}");
                run.set_bytes(a, &bytes).unwrap();
                run.set(b, &b_values).unwrap();
                run.compute().unwrap();
                assert_close(&run.get(y).unwrap(), &expected, &what);
            }
        }
    }
}

/// `[m, k]` and `[n, k]`; the second is contiguous, or a transposed `[k, n]`.
#[test]
fn blas_out_prod_equals_plain_rust() {
    for (m, n, k) in [(5, 7, 3), (64, 33, 40), (1, 9, 4), (9, 1, 4), (6, 5, 1)] {
        for turned in [false, true] {
            let what = format!("{m} {n} {k} {turned}");
            let ctx = Context::new();
            let a = ctx.input("a", DType::F32, [m as i64, k as i64]).unwrap();
            let [b0, b1] = if turned { [k, n] } else { [n, k] };
            let b = ctx.input("b", DType::F32, [b0 as i64, b1 as i64]).unwrap();
            let y = ctx.out_prod(a, if turned { ctx.transpose(b).unwrap() } else { b }).unwrap();
            assert!(blas().supports_op(y).unwrap(), "{what}");
            let graph = ctx.graph([y]).unwrap();
            let mut allocator = GraphAllocator::new(blas().buffer_type());
            let (x, z) = (numbers(m * k, 3), numbers(n * k, 4));
            let mut backend = backend(2);
            let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
            memory.set(a, &x).unwrap();
            memory.set(b, &z).unwrap();
            memory.compute().unwrap();
            let at = |j: usize, p: usize| f64::from(if turned { z[j * k + p] } else { z[p * n + j] });
            let sum = |i: usize, j: usize| (0..k).map(|p| f64::from(x[p * m + i]) * at(j, p)).sum();
            let expected: Vec<f64> = (0..n).flat_map(|j| (0..m).map(move |i| (i, j))).map(|(i, j)| sum(i, j)).collect();
            assert_close(&memory.get(y).unwrap(), &expected, &what);
        }
    }
}

#[test]
fn sched_leaves_to_the_cpu_what_blas_cannot_run() {
    let ctx = Context::new();
    let (sa, sb) = ([64, 40, 1, 1], [64, 36, 1, 1]);
    let w = ctx.input("w", DType::F32, shape(sa)).unwrap();
    let x = ctx.input("x", DType::F32, shape(sb)).unwrap();
    let large = ctx.mul_mat(w, x).unwrap();
    let relu = ctx.relu(large).unwrap();
    let again = ctx.mul_mat(relu, relu).unwrap();
    let column = ctx.view(again, [36_i64, 1], [36 * 4, 36 * 4, 36 * 4], 0).unwrap();
    let small = ctx.mul_mat(ctx.relu(again).unwrap(), column).unwrap();
    let graph = ctx.graph([small]).unwrap();
    let mut sched = sched(2);
    let mut run = sched.alloc(&graph).unwrap();
    for (t, name) in [(large, "BLAS"), (relu, "CPU"), (again, "BLAS"), (small, "CPU")] {
        assert_eq!(run.backend_of(t).unwrap().name(), name, "{t:?}");
    }
    assert!(run.n_splits() >= 4, "{}", run.to_dot().unwrap());
    assert_eq!(run.n_copies(), 1, "one copy of the graph");
    let (a, b) = (numbers(64 * 40, 5), numbers(64 * 36, 6));
    for round in 0..3 {
        run.set(w, &a).unwrap();
        run.set(x, &b).unwrap();
        run.compute().unwrap();
        let relu: Vec<f32> = product(&a, sa, &b, sb).into_iter().map(|v| v.max(0.0) as f32).collect();
        let r = [40, 36, 1, 1];
        let again: Vec<f32> = product(&relu, r, &relu, r).into_iter().map(|v| v as f32).collect();
        let rows: Vec<f32> = again.iter().map(|v| v.max(0.0)).collect();
        let expected = product(&rows, [36, 36, 1, 1], &again[..36], [36, 1, 1, 1]);
        let got: Vec<f32> = run.get(small).unwrap();
        for (x, y) in got.iter().zip(&expected) {
            assert!((f64::from(*x) - y).abs() < 1e-4 * y.abs().max(1.0), "{x} for {y} in round {round}");
        }
    }
}

#[test]
fn blas_alone_refuses_what_it_cannot_run() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64, 64]).unwrap();
    let short = ctx.input("short", DType::F16, [64, 64]).unwrap();
    let few = ctx.input("few", DType::F32, [64, 4]).unwrap();
    let refused = [
        ctx.relu(x).unwrap(),
        ctx.mul_mat(short, short).unwrap(),
        ctx.mul_mat(x, few).unwrap(),
        ctx.add(x, x).unwrap(),
    ];
    for y in refused {
        assert!(!blas().supports_op(y).unwrap(), "{y:?}");
        let graph = ctx.graph([y]).unwrap();
        let mut allocator = GraphAllocator::new(blas().buffer_type());
        // BLAS uses the CPU's buffer type, and the CPU can run the whole graph.
        allocator.reserve(&graph).unwrap();
        let mut backend = backend(1);
        let error = allocator.alloc(&graph, &mut backend).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    }
}

/// ggml asserts during the computation that the elements of the first operand's rows are contiguous, but its earlier
/// check ignores the stride of a dimension of size 1.
#[test]
fn blas_out_prod_refuses_a_first_operand_without_dense_rows() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let a = ctx.transpose(ctx.view(x, [8_i64, 1], [0, 32, 32], 0).unwrap()).unwrap();
    assert_eq!((a.ne(), a.nb()[0]), ([1, 8, 1, 1], 0));
    let b = ctx.input("b", DType::F32, [5, 8]).unwrap();
    let y = ctx.out_prod(a, b).unwrap();
    assert!(!blas().supports_op(y).unwrap());
    let graph = ctx.graph([y]).unwrap();
    assert!(matches!(sched(1).alloc(&graph), Err(Error::Unsupported { .. })), "the CPU refuses it, too");
}

/// ggml assumes that a transposed operand is contiguous.
#[test]
fn blas_out_prod_refuses_transposed_operands_with_gaps() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [4, 3]).unwrap();
    let whole = ctx.input("b", DType::F32, [5, 6]).unwrap();
    let b = ctx.transpose(ctx.view(whole, [3_i64, 6], [20, 120, 120], 0).unwrap()).unwrap();
    let y = ctx.out_prod(a, b).unwrap();
    assert!(!blas().supports_op(y).unwrap() && Device::cpu().unwrap().supports_op(y).unwrap());
    let graph = ctx.graph([y]).unwrap();
    match sched(1).alloc(&graph) {
        Err(Error::Unsupported { device, reason, .. }) => {
            assert_eq!(&*device, "BLAS");
            assert!(reason.contains("no gaps"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// Which kernels a server uses is unknown to its client.
#[cfg(feature = "rpc")]
#[test]
fn rpc_server_may_compute_by_blas() {
    let server = ggml::rpc::Server::builder().devices([blas()]).start().unwrap();
    let connection = ggml::rpc::connect(&server.address().to_string()).unwrap();
    let remote = connection.devices()[0];
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [4, 3]).unwrap();
    let whole = ctx.input("b", DType::F32, [5, 6]).unwrap();
    for (gap, accepted) in [(5, false), (3, true)] {
        let b = ctx.view(whole, [3_i64, 6], [gap * 4, gap * 24, gap * 24], 0).unwrap();
        let y = ctx.out_prod(a, ctx.transpose(b).unwrap()).unwrap();
        assert_eq!(remote.supports_op(y).unwrap(), accepted, "rows {gap} apart");
    }
}

/// BLAS takes 32-bit dimensions. Tensors of such sizes are only checked, never allocated.
#[test]
fn blas_refuses_dimensions_beyond_32_bits() {
    let ctx = Context::new();
    let tensor = |ne: [i64; 2]| ctx.input("", DType::F32, ne).unwrap();
    let most = i64::from(i32::MAX);
    let x = tensor([64, 64]);
    for (n, fits) in [(most, true), (most + 1, false)] {
        let products = [
            ctx.mul_mat(tensor([64, n]), x).unwrap(),
            ctx.mul_mat(x, tensor([64, n])).unwrap(),
            ctx.mul_mat(tensor([n, 32]), tensor([n, 32])).unwrap(),
            ctx.out_prod(tensor([n, 64]), x).unwrap(),
            ctx.out_prod(x, tensor([n, 64])).unwrap(),
        ];
        for y in products {
            assert_eq!(blas().supports_op(y).unwrap(), fits, "{y:?}");
        }
    }
}

#[test]
fn blas_set_threads_takes_only_a_count() {
    let mut backend = blas().init().unwrap();
    assert_eq!(backend.threads(), std::thread::available_parallelism().unwrap().get().min(Backend::MAX_THREADS));
    for count in [0, Backend::MAX_THREADS + 1] {
        assert!(matches!(backend.set_threads(count), Err(Error::Param { name: "count", .. })), "{count}");
    }
    let lazy = Threads::new(2).with_priority(Priority::Low);
    assert!(matches!(backend.set_threads(lazy), Err(Error::Param { name: "threads", .. })), "BLAS has no priorities");
    backend.set_threads(3).unwrap();
    assert_eq!(backend.threads(), 3);
    assert!(backend.set_use_ref(true).is_err() && backend.pause_threads().is_err(), "those are the CPU's");
}

/// The library has one set of threads per process, whose number each backend sets.
#[test]
fn blas_backends_compute_concurrently_with_different_thread_counts() {
    let (sa, sb) = ([256, 96, 2, 1], [256, 64, 2, 1]);
    let (bytes, a_values) = encoded(DType::F16, sa, 7);
    let b_values = numbers(sb.iter().product(), 8);
    let expected = product(&a_values, sa, &b_values, sb);
    std::thread::scope(|scope| {
        for threads in [1, 2, 3, 5] {
            let (bytes, b_values, expected) = (&bytes, &b_values, &expected);
            scope.spawn(move || {
                let ctx = Context::new();
                let a = ctx.input("a", DType::F16, shape(sa)).unwrap();
                let b = ctx.input("b", DType::F32, shape(sb)).unwrap();
                let y = ctx.mul_mat(a, b).unwrap();
                let graph = ctx.graph([y]).unwrap();
                let mut sched = sched(threads);
                let mut run = sched.alloc(&graph).unwrap();
                run.set_bytes(a, bytes).unwrap();
                run.set(b, b_values).unwrap();
                for _ in 0..20 {
                    run.compute().unwrap();
                    assert_close(&run.get(y).unwrap(), expected, "beside others");
                }
            });
        }
    });
}

/// ggml starts a thread for each part of an operand that it converts. If one can't be started, the others go on: the
/// backend must wait for them before their memory is freed. Runs in a process of its own, which has address space for
/// the stacks of a few new threads only.
#[cfg(target_os = "linux")]
#[test]
fn blas_threads_that_cannot_start_are_an_error() {
    const CHILD: &str = "GGML_TEST_NO_THREADS";
    if std::env::var_os(CHILD).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["blas_threads_that_cannot_start_are_an_error", "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let k = 1 << 19;
    let ctx = Context::new();
    let a = ctx.input("a", DType::F16, [k as i64, 64]).unwrap();
    let b = ctx.input("b", DType::F32, [k as i64, 32]).unwrap();
    let y = ctx.mul_mat(a, b).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(blas().buffer_type());
    let mut one = backend(1);
    let mut memory = allocator.alloc(&graph, &mut one).unwrap();
    memory.set(a, &vec![half::f16::ONE; k * 64]).unwrap();
    memory.set(b, &vec![1.0_f32; k * 32]).unwrap();
    memory.compute().unwrap();
    assert_eq!(memory.get::<f32>(y).unwrap().last(), Some(&(k as f32)), "the library has what it needs now");
    drop(memory);
    one.set_threads(64).unwrap();
    let mut memory = allocator.alloc(&graph, &mut one).unwrap();
    memory.set(a, &vec![half::f16::ONE; k * 64]).unwrap();
    memory.set(b, &vec![1.0_f32; k * 32]).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|l| l.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live structure that the call writes to.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) }, 0);
    // Address space for a few stacks.
    let tight = libc::rlimit { rlim_cur: (size.unwrap() + 20_000) * 1024, ..limit };
    // SAFETY: `tight` is a live structure that the call only reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const tight) }, 0);
    let result = memory.compute();
    // Threads that still ran would access freed memory.
    drop(memory);
    drop(allocator);
    // SAFETY: `limit` is a live structure that the call only reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    assert!(matches!(result, Err(Error::Exception { .. })), "{result:?}");
    assert!(matches!(one.synchronize(), Err(Error::Poisoned { .. })), "nobody knows what it was doing");
    assert_eq!(one.name(), "BLAS");
    let mut allocator = GraphAllocator::new(blas().buffer_type());
    let mut backend = backend(2);
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(a, &vec![half::f16::ONE; k * 64]).unwrap();
    memory.set(b, &vec![1.0_f32; k * 32]).unwrap();
    memory.compute().unwrap();
    assert_eq!(memory.get::<f32>(y).unwrap().last(), Some(&(k as f32)), "others go on");
}

/// BLAS claims a product by its size, so an operation may move to the other device from one graph to the next.
#[test]
fn sched_moves_mul_mat_of_changing_sizes_between_blas_and_the_cpu() {
    let mut sched = sched(1);
    let mut on_blas = Vec::new();
    for n in [64_usize, 8, 65, 64, 8, 9, 128] {
        let ctx = Context::new();
        let (a, b) = (ctx.input("a", DType::F32, [64, 64]).unwrap(), ctx.input("b", DType::F32, [64, n]).unwrap());
        let y = ctx.mul_mat(ctx.neg(a).unwrap(), b).unwrap();
        let z = ctx.neg(y).unwrap();
        let graph = ctx.graph([z]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        let (x, w) = (numbers(64 * 64, 1), numbers(64 * n, 2));
        run.set(a, &x).unwrap();
        run.set(b, &w).unwrap();
        run.compute().unwrap();
        on_blas.push(run.backend_of(y).unwrap().device() == blas());
        let wanted = product(&x, [64, 64, 1, 1], &w, [64, n, 1, 1]);
        for (got, wanted) in run.get::<f32>(z).unwrap().into_iter().zip(wanted) {
            assert!((f64::from(got) - wanted).abs() < 1e-4, "{got} {wanted} for {n}");
        }
    }
    assert_eq!(on_blas, [true, false, true, true, false, false, true], "where products run");
}
