//! Weights and states: zero-copy over user memory, in pieces, copied and filled.

#![cfg(test)]
#![allow(clippy::float_cmp, reason = "exact results")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml::prelude::*;
use ggml::{BufferUsage, Pieces};

/// Bytes aligned to 32 that record their drop.
struct Aligned {
    units: Vec<[u8; 32]>,
    skip: usize,
    gone: Arc<AtomicBool>,
}

impl Aligned {
    fn new(floats: &[f32]) -> Self {
        let bytes: Vec<u8> = floats.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let mut units = vec![[0; 32]; bytes.len().div_ceil(32) + 1];
        let skip = (32 - units.as_ptr().addr() % 32) % 32;
        units.as_flattened_mut()[skip..skip + bytes.len()].copy_from_slice(&bytes);
        Self { units, skip, gone: Arc::default() }
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.units.as_flattened()[self.skip..self.units.len() * 32 - (32 - self.skip)]
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

fn two_tensors() -> WeightsBuilder {
    let mut builder = WeightsBuilder::new();
    builder.tensor("a", DType::F32, [8]).unwrap();
    builder.tensor("b", DType::F32, [4, 2]).unwrap();
    builder
}

fn numbers(n: u8) -> Vec<f32> {
    (0..n).map(f32::from).collect()
}

#[test]
fn place_over_uses_memory_of_the_caller() {
    let memory = Aligned::new(&numbers(24));
    let (gone, address) = (Arc::clone(&memory.gone), memory.as_ref().as_ptr());
    let place = |leaf: &LeafInfo| if leaf.name() == "a" { 32 } else { 0 };
    let mut weights = two_tensors().place_over(Device::cpu().unwrap(), memory, place).unwrap();
    assert_eq!(weights.tensor("a").unwrap().read::<f32>().unwrap(), numbers(16)[8..]);
    assert_eq!(weights.tensor("b").unwrap().read::<f32>().unwrap(), numbers(8));
    assert_eq!(weights.buffers().len(), 1, "nothing was copied into other buffers");
    assert_eq!(weights.buffers()[0].size(), 96);

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.mul_mat(weights.tensor("b").unwrap(), x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [6.0, 22.0]);
    drop(run);
    drop(graph);
    drop(ctx);

    // The memory is shared read-only: nothing writes to it.
    let other = two_tensors().place(Device::cpu().unwrap().buffer_type()).unwrap();
    let results = [
        weights.set("a", &[0.0_f32; 8]),
        weights.set_bytes("a", &[0; 32]),
        weights.fill_bytes("a", 0),
        weights.copy("a", other.tensor("a").unwrap()),
        weights.set_2d("a", Pieces { offset: 0, len: 1, count: 1, step: 1, data_step: 1 }, &[0.0_f32]),
    ];
    for result in results {
        assert!(matches!(result, Err(Error::Frozen { .. })), "{result:?}");
    }
    assert!(!gone.load(Ordering::Relaxed), "the weights keep it");
    drop(weights);
    assert!(gone.load(Ordering::Relaxed), "and give it back, from {address:?}");
}

#[test]
fn place_over_refuses_offsets_out_of_bounds() {
    let cpu = Device::cpu().unwrap();
    let over = |memory: Aligned, a: usize, b: usize| {
        two_tensors().place_over(cpu, memory, move |leaf| if leaf.name() == "a" { a } else { b }).map(drop)
    };
    assert!(over(Aligned::new(&numbers(16)), 0, 32).is_ok(), "both fit exactly");
    for (a, b) in [(0, 64), (2, 32), (0, 33), (usize::MAX - 31, 0), (1 << 40, 0)] {
        let result = over(Aligned::new(&numbers(16)), a, b);
        assert!(matches!(result, Err(Error::Shape { .. })), "{a} {b}: {result:?}");
    }
    let mut odd = Aligned::new(&numbers(16));
    odd.skip += 1;
    odd.units.push([0; 32]);
    let result = over(odd, 0, 32);
    assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
    let result = two_tensors().place_over(cpu, Vec::new(), |_| 0).map(drop);
    assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
}

#[test]
fn buffers_report_usage_and_size() {
    let buft = Device::cpu().unwrap().buffer_type();
    let weights = two_tensors().place(buft).unwrap();
    let state = two_tensors().place_state(buft).unwrap();
    for (buffer, usage) in [(&weights.buffers()[0], BufferUsage::Weights), (&state.buffers()[0], BufferUsage::Any)] {
        assert_eq!(buffer.usage(), usage);
        assert_eq!((buffer.buffer_type(), buffer.name(), buffer.is_host()), (buft, "CPU".into(), true));
        assert!(buffer.size() >= 64, "{buffer:?}");
    }
}

/// Columns 1 and 2 of a 4x3 matrix, in every second element of host memory.
const COLUMNS: Pieces = Pieces { offset: 1, len: 2, count: 3, step: 4, data_step: 3 };

fn matrix() -> State {
    let mut builder = WeightsBuilder::new();
    builder.tensor("m", DType::F32, [4, 3]).unwrap();
    builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap()
}

#[test]
fn read_2d_and_set_2d_transfer_pieces() {
    let state = matrix();
    state.set("m", &numbers(12)).unwrap();
    let mut out = [-1.0_f32; 8];
    state.read_2d("m", COLUMNS, &mut out).unwrap();
    assert_eq!(out, [1.0, 2.0, -1.0, 5.0, 6.0, -1.0, 9.0, 10.0]);
    state.set_2d("m", COLUMNS, &[20.0_f32, 21.0, 0.0, 22.0, 23.0, 0.0, 24.0, 25.0]).unwrap();
    let want = [0.0, 20.0, 21.0, 3.0, 4.0, 22.0, 23.0, 7.0, 8.0, 24.0, 25.0, 11.0];
    assert_eq!(state.tensor("m").unwrap().read::<f32>().unwrap(), want);
    // The step of a single piece is ignored; zero pieces do nothing.
    let one = Pieces { offset: 11, len: 1, count: 1, step: usize::MAX, data_step: usize::MAX };
    state.set_2d("m", one, &[5.0_f32]).unwrap();
    state.set_2d("m", Pieces { len: usize::MAX, count: 0, ..one }, &[5.0_f32]).unwrap();
    assert_eq!(state.tensor("m").unwrap().read::<f32>().unwrap()[11].to_bits(), 5.0_f32.to_bits());
}

/// H4: ggml adds offset, steps and size without overflow checks.
#[test]
fn h04_pieces_out_of_bounds_are_refused() {
    let state = matrix();
    let huge = usize::MAX / 4;
    let outside = [
        Pieces { offset: 3, ..COLUMNS },
        Pieces { len: 4, data_step: 4, ..COLUMNS },
        Pieces { count: 4, ..COLUMNS },
        Pieces { step: 5, ..COLUMNS },
        Pieces { offset: usize::MAX, ..COLUMNS },
        Pieces { offset: huge, ..COLUMNS },
        Pieces { step: huge, count: 5, ..COLUMNS },
        Pieces { count: usize::MAX, ..COLUMNS },
    ];
    for pieces in outside {
        let mut out = vec![0.0_f32; 64];
        for result in [state.read_2d("m", pieces, &mut out), state.set_2d("m", pieces, &out)] {
            assert!(matches!(result, Err(Error::Range { .. })), "{pieces:?}: {result:?}");
        }
    }
    let mut short = [0.0_f32; 7];
    assert!(matches!(state.read_2d("m", COLUMNS, &mut short), Err(Error::Length { .. })), "one too short");
    assert!(matches!(state.set_2d("m", COLUMNS, &short), Err(Error::Length { .. })), "one too short");
    for pieces in [Pieces { step: 1, ..COLUMNS }, Pieces { data_step: 1, ..COLUMNS }] {
        assert!(matches!(state.set_2d("m", pieces, &[0.0_f32; 9]), Err(Error::Param { .. })), "{pieces:?} overlap");
    }
    assert!(matches!(state.set_2d("m", COLUMNS, &[0_i32; 9]), Err(Error::ElementType { .. })), "not of its type");
}

#[test]
fn pieces_without_elements_return_at_once() {
    let state = matrix();
    let before = state.read_bytes("m").unwrap();
    for count in [1, 3, usize::MAX] {
        let empty = Pieces { offset: 1, len: 0, count, step: 0, data_step: 0 };
        state.set_2d::<f32>("m", empty, &[]).unwrap();
        state.read_2d::<f32>("m", empty, &mut []).unwrap();
    }
    assert_eq!(state.read_bytes("m").unwrap(), before, "nothing was written");
}

#[test]
fn tensors_are_copied_filled_and_cleared() {
    let buft = Device::cpu().unwrap().buffer_type();
    let mut weights = two_tensors().place(buft).unwrap();
    weights.set("a", &numbers(8)).unwrap();
    let state = two_tensors().place_state(buft).unwrap();
    state.copy("a", weights.tensor("a").unwrap()).unwrap();
    assert_eq!(state.tensor("a").unwrap().read::<f32>().unwrap(), numbers(8));
    state.fill_bytes("b", 0xff).unwrap();
    assert_eq!(state.read_bytes("b").unwrap(), [0xff; 32]);
    weights.copy("b", state.tensor("b").unwrap()).unwrap();
    assert_eq!(weights.read_bytes("b").unwrap(), [0xff; 32]);
    weights.fill_bytes("b", 1).unwrap();
    assert_eq!(weights.read_bytes("b").unwrap(), [1; 32]);
    state.clear_bytes(2).unwrap();
    assert_eq!((state.read_bytes("a").unwrap(), state.read_bytes("b").unwrap()), (vec![2; 32], vec![2; 32]));

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let half = ctx.view(state.tensor("a").unwrap(), [4], [16, 16, 16], 0).unwrap();
    assert!(matches!(state.copy("a", x), Err(Error::NotPart { .. })), "an input has no memory of its own");
    assert!(matches!(state.copy("a", state.tensor("a").unwrap()), Err(Error::Shape { .. })), "itself");
    let all = ctx.view(weights.tensor("a").unwrap(), [8], [32, 32, 32], 0).unwrap();
    for view in [half, all] {
        assert!(matches!(state.copy("a", view), Err(Error::NotPart { .. })), "a view has no buffer");
    }
    assert_eq!(all.read::<f32>().unwrap(), numbers(8), "but can be read");
    assert!(matches!(state.copy("b", state.tensor("a").unwrap()), Err(Error::Shape { .. })), "another shape");
    assert!(matches!(state.copy("c", weights.tensor("a").unwrap()), Err(Error::NoSuch { .. })), "no such tensor");
}

#[test]
fn elements_are_read_and_set_by_position() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("f", DType::F32, [3, 2, 4, 5]).unwrap();
    builder.tensor("i", DType::I32, [1 << 15]).unwrap();
    let memory = Device::cpu().unwrap().buffer_type();
    let mut weights = builder.place(memory).unwrap();
    let all: Vec<f32> = (0..120_u8).map(f32::from).collect();
    weights.set("f", &all).unwrap();
    assert_eq!(weights.element::<f32>("f", [2, 1, 3, 4]).unwrap(), 119.0);
    assert_eq!(weights.element::<f32>("f", [1, 0, 2, 3]).unwrap(), 85.0, "1 + 3 * 2 * (2 + 4 * 3)");
    weights.set_element("f", [1, 0, 2, 3], -1.0_f32).unwrap();
    let read = weights.tensor("f").unwrap().read::<f32>().unwrap();
    let changed: Vec<_> = all.iter().zip(&read).enumerate().filter(|(_, (a, b))| a != b).collect();
    assert_eq!(changed, [(85, (&85.0, &-1.0))]);
    for at in [[3, 0, 0, 0], [0, 2, 0, 0], [0, 0, 4, 0], [0, 0, 0, 5], [-1, 0, 0, 0], [0, i64::MAX, 0, 0]] {
        assert!(matches!(weights.element::<f32>("f", at), Err(Error::Param { .. })), "{at:?}");
        assert!(matches!(weights.set_element("f", at, 0.0_f32), Err(Error::Param { .. })), "{at:?}");
    }
    assert!(matches!(weights.element::<i32>("f", [0; 4]), Err(Error::ElementType { .. })));
    assert!(matches!(weights.fill_with("f", 1_i32), Err(Error::ElementType { .. })));
    assert!(matches!(weights.element::<f32>("g", [0; 4]), Err(Error::NoSuch { .. })));

    weights.fill_with("i", 7_i32).unwrap();
    assert_eq!(weights.tensor("i").unwrap().read::<i32>().unwrap(), vec![7; 1 << 15]);
    weights.fill_with("f", 0.5_f32).unwrap();
    assert_eq!(weights.tensor("f").unwrap().read::<f32>().unwrap(), [0.5; 120]);

    let mut builder = WeightsBuilder::new();
    builder.tensor("n", DType::I32, [2]).unwrap();
    let state = builder.place_state(memory).unwrap();
    state.set_element("n", [1, 0, 0, 0], 5_i32).unwrap();
    assert_eq!(state.element::<i32>("n", [1, 0, 0, 0]).unwrap(), 5);
    state.fill_with("n", 9_i32).unwrap();
    assert_eq!(state.tensor("n").unwrap().read::<i32>().unwrap(), [9, 9]);
}
