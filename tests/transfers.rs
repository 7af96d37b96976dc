//! Asynchronous transfers and computations: on the CPU, which does them at once, on an RPC server, which does them
//! later, and on GPUs in Rust, which watch for races.

#![cfg(test)]
#![allow(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml::prelude::*;
use ggml::{Error, GraphAllocator, Pieces, Writable};

/// The CPU, a server that lives as long as the tests, and two GPUs in Rust.
fn devices() -> Vec<Device> {
    #[cfg(feature = "rpc")]
    let served = Some(testkit::device::served());
    #[cfg(not(feature = "rpc"))]
    let served = None;
    std::iter::once(Device::cpu().unwrap()).chain(served).chain(testkit::device::fakes()).collect()
}

/// Large enough to keep a server busy for a while.
const N: usize = 1 << 16;

fn builder() -> WeightsBuilder {
    let mut builder = WeightsBuilder::new();
    for name in ["a", "b"] {
        builder.tensor(name, DType::F32, [N as i64]).unwrap();
    }
    builder.tensor("m", DType::F32, [4, 3]).unwrap();
    builder
}

fn numbers(n: usize, from: usize) -> Vec<f32> {
    (from..from + n).map(|i| i as f32).collect()
}

fn read(t: Tensor<'_>) -> Vec<f32> {
    t.read().unwrap()
}

/// Columns 1 and 2 of `m`, in every second element of host memory.
const COLUMNS: Pieces = Pieces { offset: 1, len: 2, count: 3, step: 4, data_step: 3 };

#[test]
fn transfers_complete_when_their_closure_returns() {
    for device in devices() {
        let mut backend = device.init().unwrap();
        let state = builder().place_state(device.buffer_type()).unwrap();
        let a = numbers(N, 1);
        let (mut b, mut m, mut columns) = (vec![0.0_f32; N], [0.0_f32; 12], [-1.0_f32; 8]);
        let given = backend
            .transfers(|queue| {
                queue.set(&state, "a", &a)?;
                queue.copy(state.tensor("a")?, &state, "b")?;
                queue.get(state.tensor("b")?, &mut b)?;
                queue.set(&state, "m", numbers(12, 0))?;
                queue.get_2d(state.tensor("m")?, COLUMNS, &mut columns)?;
                queue.set_2d(&state, "m", COLUMNS, vec![20.0_f32, 21.0, 0.0, 22.0, 23.0, 0.0, 24.0, 25.0])?;
                queue.get(state.tensor("m")?, &mut m)?;
                Ok("passed on")
            })
            .unwrap();
        assert_eq!(given, "passed on");
        assert!(b == a && read(state.tensor("b").unwrap()) == a, "{device}");
        assert_eq!(columns, [1.0, 2.0, -1.0, 5.0, 6.0, -1.0, 9.0, 10.0], "{device}");
        assert_eq!(m, [0.0, 20.0, 21.0, 3.0, 4.0, 22.0, 23.0, 7.0, 8.0, 24.0, 25.0, 11.0], "{device}");
        // Pieces without elements do nothing, however many there are.
        let nothing = Pieces { offset: 0, len: 0, count: usize::MAX, step: 0, data_step: 0 };
        backend
            .transfers(|queue| {
                queue.set_2d(&state, "m", nothing, &[0.0_f32; 0])?;
                queue.get_2d(state.tensor("m")?, nothing, &mut m[..0])
            })
            .unwrap();
    }
}

#[test]
fn transfers_write_weights() {
    for device in devices() {
        let mut backend = device.init().unwrap();
        let mut weights = builder().place(device.buffer_type()).unwrap();
        let data = numbers(N, 5);
        let to = Writable::from(&mut weights);
        backend
            .transfers(|queue| {
                queue.set(to, "a", &data)?;
                queue.set(to, "b", vec![1.5_f32; N])
            })
            .unwrap();
        assert!(read(weights.tensor("a").unwrap()) == data, "{device}");
        assert!(read(weights.tensor("b").unwrap()).iter().all(|&v| v == 1.5), "{device}");
    }
}

#[test]
fn transfers_copy_between_devices() {
    for from in devices() {
        for to in devices() {
            let (mut source, mut target) = (from.init().unwrap(), to.init().unwrap());
            let state = builder().place_state(from.buffer_type()).unwrap();
            let other = builder().place_state(to.buffer_type()).unwrap();
            let (data, mut back) = (numbers(N, 9), vec![0.0_f32; N]);
            state.set("a", &data).unwrap();
            target
                .transfers_from(&mut source, |queue| {
                    queue.copy(state.tensor("a")?, &other, "b")?;
                    queue.get(other.tensor("b")?, &mut back)
                })
                .unwrap();
            assert!(back == data, "{from} to {to}");
        }
    }
}

/// However the closure ends, what it lent is no longer in use afterwards.
#[test]
fn transfers_complete_after_errors_and_panics() {
    for device in devices() {
        let mut backend = device.init().unwrap();
        let state = builder().place_state(device.buffer_type()).unwrap();
        let data = numbers(N, 3);
        let mut out = vec![0.0_f32; N];
        let panic = catch_unwind(AssertUnwindSafe(|| {
            backend.transfers(|queue| -> ggml::Result<()> {
                queue.set(&state, "a", &data)?;
                queue.get(state.tensor("a")?, &mut out)?;
                panic!("in between")
            })
        }));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"in between"));
        assert!(out == data, "{device}");
        out.fill(0.0);
        let result = backend.transfers(|queue| {
            queue.get(state.tensor("a")?, &mut out)?;
            queue.set(&state, "none", &[0.0_f32; 1])
        });
        assert!(matches!(result, Err(Error::NoSuch { .. })), "{result:?}");
        assert!(out == data, "{device}");
    }
}

#[test]
fn h04_transfers_out_of_bounds_are_refused() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    for device in devices() {
        let mut backend = device.init().unwrap();
        let state = builder().place_state(device.buffer_type()).unwrap();
        let view = ctx.view(state.tensor("a").unwrap(), [4], [16, 16, 16], 0).unwrap();
        let [mut one, mut two] = [[0.0_f32; 4], [0.0_f32; 4]];
        let mut integers = vec![0_i32; N];
        let mut wide = vec![0.0_f32; 64];
        backend
            .transfers(|queue| {
                assert!(matches!(queue.set(&state, "m", &[0.0_f32; 11]), Err(Error::Length { .. })), "too short");
                assert!(matches!(queue.set(&state, "m", &[0_i32; 12]), Err(Error::ElementType { .. })), "another type");
                assert!(matches!(queue.get(state.tensor("a")?, &mut one), Err(Error::Length { .. })), "too short");
                assert!(
                    matches!(queue.get(state.tensor("a")?, &mut integers), Err(Error::ElementType { .. })),
                    "a type"
                );
                assert!(matches!(queue.get(view, &mut two), Err(Error::NotPart { .. })), "views have no buffer");
                assert!(matches!(queue.copy(view, &state, "m"), Err(Error::NotPart { .. })), "views have no buffer");
                assert!(matches!(queue.copy(x, &state, "m"), Err(Error::NotPart { .. })), "it has no memory");
                assert!(
                    matches!(queue.copy(state.tensor("m")?, &state, "a"), Err(Error::Shape { .. })),
                    "another shape"
                );
                assert!(matches!(queue.copy(state.tensor("a")?, &state, "a"), Err(Error::Shape { .. })), "itself");
                for pieces in [
                    Pieces { offset: 3, ..COLUMNS },
                    Pieces { offset: usize::MAX, ..COLUMNS },
                    Pieces { step: usize::MAX / 4, count: 5, ..COLUMNS },
                ] {
                    let result = queue.set_2d(&state, "m", pieces, vec![0.0_f32; 64]);
                    assert!(matches!(result, Err(Error::Range { .. })), "{pieces:?}: {result:?}");
                }
                let outside = Pieces { offset: 3, ..COLUMNS };
                let result = queue.get_2d(state.tensor("m")?, outside, &mut wide);
                assert!(matches!(result, Err(Error::Range { .. })), "{result:?}");
                Ok(())
            })
            .unwrap();
        for other in devices().into_iter().filter(|&d| d != device) {
            let elsewhere = builder().place_state(other.buffer_type()).unwrap();
            let [mut one, mut two] = [(); 2].map(|()| vec![0.0_f32; N]);
            backend
                .transfers(|queue| {
                    let results = [
                        queue.set(&elsewhere, "a", vec![0.0_f32; N]),
                        queue.get(elsewhere.tensor("a")?, &mut one),
                        queue.copy(elsewhere.tensor("a")?, &state, "a"),
                        queue.copy(state.tensor("a")?, &elsewhere, "a"),
                        queue.set_2d(&elsewhere, "m", COLUMNS, vec![0.0_f32; 9]),
                        queue.get_2d(elsewhere.tensor("a")?, COLUMNS, &mut two),
                    ];
                    assert!(results.iter().all(|r| matches!(r, Err(Error::Unsupported { .. }))), "{results:?}");
                    Ok(())
                })
                .unwrap();
        }
    }
}

#[test]
fn compute_async_runs_the_closure_during_the_computation() {
    for device in devices() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [256, 256]).unwrap();
        let y = (0..8).fold(x, |y, _| ctx.add(y, x).unwrap());
        let graph = ctx.graph([y]).unwrap();
        let mut backend = device.init().unwrap();
        let mut allocator = GraphAllocator::new(device.buffer_type());
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        let mut called = 0;
        let result = memory.compute_async(|| called += 1);
        assert!(matches!(result, Err(Error::InputNotSet { .. })), "{result:?}");
        assert_eq!(called, 0, "nothing was started");
        for round in 1..4 {
            memory.set(x, &vec![round as f32; 256 * 256]).unwrap();
            let other = memory.compute_async(|| {
                called += 1;
                // Tensors that devices use can't be allocated again.
                let mut other = device.init().unwrap();
                let again = GraphAllocator::new(device.buffer_type()).alloc(&graph, &mut other).map(drop);
                assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
                called
            });
            assert_eq!(other.unwrap(), round, "{device}");
            assert!(memory.get::<f32>(y).unwrap().iter().all(|&v| v == 9.0 * round as f32), "{device}");
        }
        let panic = catch_unwind(AssertUnwindSafe(|| memory.compute_async(|| panic!("meanwhile"))));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"meanwhile"));
        assert_eq!(memory.get::<f32>(y).unwrap()[0], 27.0, "{device}: the devices went on");
        memory.compute().unwrap();
        assert_eq!(memory.get::<f32>(y).unwrap()[0], 27.0, "{device}");
    }
}

#[test]
fn compute_async_skips_the_closure_if_cancelled_at_once() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    backend.set_abort(|| true).unwrap();
    let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &[1.0_f32; 4]).unwrap();
    let result = memory.compute_async(|| panic!("not called"));
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}
