//! Asynchronous computations: everything that depends on them waits.

use std::time::{Duration, Instant};

use ggml::prelude::*;
use ggml::{Event, GraphAllocator, Pieces};

use crate::beside::distance;
use crate::{backend, vulkan};

const WIDTH: usize = 256;

/// Enough products to take a while; the result equals the input doubled `STEPS` times.
const STEPS: usize = 12;

fn doubled<'c>(ctx: &'c Context, x: Tensor<'c>, two: Tensor<'c>) -> Tensor<'c> {
    (0..STEPS).fold(x, |x, _| ctx.mul_mat(two, x).unwrap())
}

fn twos() -> Vec<f32> {
    (0..WIDTH * WIDTH).map(|i| if i / WIDTH == i % WIDTH { 2.0 } else { 0.0 }).collect()
}

fn start(seed: usize) -> Vec<f32> {
    (0..WIDTH * WIDTH).map(|i| ((i + seed) % 13) as f32 / 8.0).collect()
}

fn end(seed: usize) -> Vec<f32> {
    start(seed).into_iter().map(|x| x * (1 << STEPS) as f32).collect()
}

/// Doubles many times on `backend`: `f` gets the allocated graph, its input and its result.
fn with_work(backend: &mut Backend, f: impl FnOnce(&mut Run<'_, '_>, Tensor<'_>, Tensor<'_>)) {
    let ctx = Context::new();
    let shape = [WIDTH as i64, WIDTH as i64];
    let x = ctx.input("x", DType::F32, shape).unwrap();
    let two = ctx.input("two", DType::F32, shape).unwrap();
    let y = doubled(&ctx, x, two);
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(vulkan().buffer_type());
    let mut run = allocator.alloc(&graph, backend).unwrap();
    run.set(two, &twos()).unwrap();
    f(&mut run, x, y);
}

fn compute(seed: usize) -> impl FnOnce(&mut Run<'_, '_>, Tensor<'_>, Tensor<'_>) {
    move |run, x, y| {
        run.set(x, &start(seed)).unwrap();
        run.compute().unwrap();
        assert!(distance(&run.get(y).unwrap(), &end(seed)) < 1e-2);
    }
}

/// The first computation compiles shaders, which is not measured.
fn compute_async_overlaps_with_the_closure() {
    with_work(&mut backend(), |run, x, y| {
        run.set(x, &start(0)).unwrap();
        run.compute().unwrap();
        let mut before = Duration::ZERO;
        let mut whole = Duration::ZERO;
        for seed in 1..6 {
            run.set(x, &start(seed)).unwrap();
            let begun = Instant::now();
            before += run.compute_async(|| begun.elapsed()).unwrap();
            whole += begun.elapsed();
            assert!(distance(&run.get(y).unwrap(), &end(seed)) < 1e-2, "{seed}");
        }
        assert!(before * 2 < whole, "it began after {before:?} of {whole:?}: nothing is asynchronous here");
    });
}

fn transfers_complete_when_their_closure_returns() {
    let mut builder = WeightsBuilder::new();
    for name in ["a", "b"] {
        builder.tensor(name, DType::F32, [1 << 18]).unwrap();
    }
    let state = builder.place_state(vulkan().buffer_type()).unwrap();
    let mut backend = backend();
    for seed in 0..4 {
        let numbers: Vec<f32> = (0..1 << 18).map(|i| (i % 1000 + seed) as f32).collect();
        let mut read = vec![0.0_f32; 1 << 18];
        let mut piece = [0.0_f32; 6];
        backend
            .transfers(|queue| {
                queue.set(&state, "a", numbers.clone())?;
                queue.copy(state.tensor("a")?, &state, "b")?;
                queue.get_2d(
                    state.tensor("b")?,
                    Pieces { offset: 5, len: 3, count: 2, step: 100, data_step: 3 },
                    &mut piece,
                )?;
                queue.get(state.tensor("b")?, &mut read)
            })
            .unwrap();
        assert_eq!(read, numbers, "{seed}");
        assert_eq!(piece[..3], numbers[5..8]);
        assert_eq!(piece[3..], numbers[105..108]);
    }
    // ggml mistakes tensors in host memory for tensors in the device's memory.
    let mut builder = WeightsBuilder::new();
    builder.tensor("a", DType::F32, [16]).unwrap();
    let pinned = builder.place_state(vulkan().host_buffer_type().unwrap()).unwrap();
    let refused = backend.transfers(|queue| queue.set(&pinned, "a", vec![1.0_f32; 16]));
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

fn events_order_backends() {
    let (mut one, mut two) = (backend(), backend());
    let mut event = Event::new(vulkan()).unwrap();
    event.synchronize().unwrap();
    two.wait(&event).unwrap();
    for seed in 0..4 {
        with_work(&mut one, compute(seed));
        event.record(&mut one).unwrap();
        two.wait(&event).unwrap();
        with_work(&mut two, compute(seed));
        event.record(&mut two).unwrap();
        event.synchronize().unwrap();
    }
}

/// C's wait for an event writes to the queue of the backend that recorded it.
fn event_outlives_the_backend_that_recorded_it() {
    let mut event = Event::new(vulkan()).unwrap();
    for _ in 0..3 {
        let mut backend = backend();
        event.record(&mut backend).unwrap();
        drop(backend);
        event.synchronize().unwrap();
        let mut other = crate::backend();
        other.wait(&event).unwrap();
        other.synchronize().unwrap();
    }
    drop(event);
}

fn event_synchronizes_while_its_backend_works() {
    let mut backend = backend();
    let mut event = Event::new(vulkan()).unwrap();
    event.record(&mut backend).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            for _ in 0..50 {
                event.synchronize().unwrap();
            }
        });
        for seed in 0..8 {
            with_work(&mut backend, compute(seed));
        }
        waiting.join().unwrap();
    });
}

testkit::trials! {
    compute_async_overlaps_with_the_closure,
    transfers_complete_when_their_closure_returns,
    events_order_backends,
    event_outlives_the_backend_that_recorded_it,
    event_synchronizes_while_its_backend_works,
}
