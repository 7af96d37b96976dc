//! Faults of ggml's meta backend with graphs that llama.cpp never builds.

use ggml::GraphAllocator;
use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use testkit::device::{here, limited, members};

use crate::support::{Matrix, assert_close, meta, noise, place, run, unless_busy, wide};

const N: i64 = 16;

fn square(name: &'static str) -> Matrix {
    Matrix::new(name, DType::F32, [N, N])
}

/// ggml resizes its lists only if a graph has more operations or more all-reduces than any before; then a graph with
/// the maximum of one and fewer of the other wrote out of bounds, or used freed lists.
#[test]
fn meta_computes_graphs_of_changing_sizes() {
    let device = meta(2);
    let weights = place(device, &[square("a.1"), square("b.0")]);
    let mut backend = limited(device.init().unwrap());
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let x = noise(N as usize, 1);
    // Many operations without all-reduce, then few and many all-reduces, alternating.
    for (ops, sums) in [(300, 0), (4, 8), (300, 0), (500, 0), (4, 8), (2, 1), (300, 9), (300, 0)] {
        let ctx = Context::new();
        let input = ctx.input("x", DType::F32, [N]).unwrap();
        let mut y = input;
        let mut want = wide(&x);
        for _ in 0..ops {
            y = ctx.scale(y, 1.001).unwrap();
            want = want.into_iter().map(|v| v * 1.001).collect();
        }
        for _ in 0..sums {
            let rows = ctx.mul_mat(weights.tensor("a.1").unwrap(), y).unwrap();
            y = ctx.scale(ctx.mul_mat(weights.tensor("b.0").unwrap(), rows).unwrap(), 0.1).unwrap();
            want = square("b.0").times(&square("a.1").times(&want)).into_iter().map(|v| v * 0.1).collect();
        }
        let graph = ctx.graph([y]).unwrap();
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        memory.set(input, &x).unwrap();
        memory.compute().unwrap();
        assert_close(&memory.get::<f32>(y).unwrap(), &want, 1e-4, &format!("{ops} operations, {sums} sums"));
    }
}

#[test]
fn meta_splits_new_weights_at_the_same_address_anew() {
    // The same name, so that everything else is equal.
    let axis = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(1));
    let answer = std::sync::Arc::clone(&axis);
    let device =
        MetaDevice::new(&members(2), move |t| match (&*t.name, answer.load(std::sync::atomic::Ordering::SeqCst)) {
            ("w", 9) => SplitMode::Mirrored,
            ("w", axis) => SplitMode::Even { axis },
            _ => SplitMode::Mirrored,
        });
    let device = device.unwrap().device();
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut ctx = Context::new();
    let x = noise((N * N) as usize, 2);
    for how in [1, 9, 0, 1, 0, 9] {
        axis.store(how, std::sync::atomic::Ordering::SeqCst);
        let weights = place(device, &[square("w")]);
        ctx.reset();
        let input = ctx.input("x", DType::F32, [N, N]).unwrap();
        let w = weights.tensor("w").unwrap();
        let y = ctx.scale(ctx.relu(w).unwrap(), 2.0).unwrap();
        let keep = ctx.relu(input).unwrap();
        let graph = ctx.graph([y, keep]).unwrap();
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        memory.set(input, &x).unwrap();
        memory.compute().unwrap();
        let want: Vec<_> = square("w").values.iter().map(|&v| f64::from(v.max(0.0)) * 2.0).collect();
        assert_close(&memory.get::<f32>(y).unwrap(), &want, 1e-6, &format!("axis {how}"));
    }
    assert_eq!(allocator.plans(), 6, "planned anew each time");
}

/// ggml's tables have no locks, and computations write to the entries of the weights that they use.
#[test]
fn meta_threads_exclude_each_other() {
    let device = meta(2);
    let names: Vec<_> = (0..64).map(|i| format!("{i}.{}", i % 2)).collect();
    // In a driver, threads try again and again.
    for round in 0..if here() == Device::cpu().unwrap() { 100 } else { 5 } {
        let mut builder = WeightsBuilder::new();
        for name in &names {
            builder.tensor(name, DType::F32, [N, N]).unwrap();
        }
        let mut weights = builder.place(device.buffer_type()).unwrap();
        for (name, value) in names.iter().zip(1_u8..) {
            weights.set(name, &[f32::from(value); (N * N) as usize]).unwrap();
        }
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let ctx = Context::new();
                    let kept: Vec<_> = names.iter().map(|n| ctx.relu(weights.tensor(n).unwrap()).unwrap()).collect();
                    let graph = ctx.graph(&kept).unwrap();
                    let computed = || {
                        let mut backend = limited(device.init()?);
                        let mut allocator = GraphAllocator::new(device.buffer_type());
                        let mut memory = allocator.alloc(&graph, &mut backend)?;
                        memory.compute()?;
                        for (i, &t) in kept.iter().enumerate() {
                            let got = memory.get::<f32>(t)?;
                            assert!(got == vec![(i + 1) as f32; got.len()], "{i} in round {round}");
                            assert_eq!(weights.tensor(&names[i])?.read::<f32>()?, got, "{i}");
                        }
                        Ok(())
                    };
                    start.wait();
                    unless_busy(computed).unwrap();
                });
            }
        });
    }
}

/// A partial sum that goes into another, or into products, is reduced late; results computed from it are right.
#[test]
fn meta_partial_sums_are_reduced_late() {
    let device = meta(3);
    let weights = place(device, &[square("a.1"), square("b.0"), square("c.0"), square("m")]);
    let x = noise(N as usize, 4);
    let ctx = Context::new();
    let got = run(device, &ctx, (&x, &[N]), |x| {
        let w = |name| weights.tensor(name);
        let rows = ctx.mul_mat(w("a.1")?, x)?;
        let [b, c] = [ctx.mul_mat(w("b.0")?, rows)?, ctx.mul_mat(w("c.0")?, rows)?];
        let scaled = ctx.mul(b, x)?;
        ctx.scale(ctx.add(scaled, c)?, 0.5)
    });
    let rows = square("a.1").times(&wide(&x));
    let (b, c) = (square("b.0").times(&rows), square("c.0").times(&rows));
    let want: Vec<_> = b.iter().zip(&c).zip(&x).map(|((b, c), &x)| (b * f64::from(x) + c) * 0.5).collect();
    assert_close(&got.unwrap(), &want, 1e-5, "both");
}

/// ggml asserts that each device can allocate its part.
#[test]
fn meta_weights_that_exceed_memory_are_an_error() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w.1", DType::F32, [1 << 30, 1 << 20]).unwrap();
    let error = builder.place(meta(2).buffer_type()).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}

/// ggml creates headers for each allocated graph, frees them when a graph is computed, and never forgets a tensor's
/// split state.
#[test]
fn meta_forgets_graphs_that_are_never_computed() {
    let device = meta(2);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [1]).unwrap();
    let y = (0..4000).fold(x, |t, _| ctx.neg(t).unwrap());
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut backend = device.init().unwrap();
    for _ in 0..300 {
        allocator.alloc(&graph, &mut backend).unwrap();
    }
    assert!((20..60).contains(&allocator.plans()), "more than a million tensors: {} plans", allocator.plans());
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[3.0_f32]).unwrap();
    memory.compute().unwrap();
    assert_eq!(memory.get::<f32>(y).unwrap(), [3.0]);
}

/// ggml asserts it for graph allocations, too: the allocator is discarded, and the next graph gets a new one.
#[test]
fn meta_graphs_that_exceed_memory_are_an_error() {
    let device = meta(2);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [1 << 30, 1 << 20]).unwrap();
    let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut backend = device.init().unwrap();
    let error = allocator.alloc(&graph, &mut backend).unwrap_err();
    // CUDA's kernels don't count so many.
    let uncounted = testkit::device::rounding() > 0.0 && matches!(error, Error::Unsupported { .. });
    assert!(uncounted || matches!(error, Error::OutOfMemory { .. }), "{error}");
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.neg(x).unwrap();
    let small = ctx.graph([y]).unwrap();
    let mut memory = allocator.alloc(&small, &mut backend).unwrap();
    memory.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    memory.compute().unwrap();
    assert_eq!(memory.get::<f32>(y).unwrap(), [-1.0, -2.0, -3.0, -4.0]);
}
