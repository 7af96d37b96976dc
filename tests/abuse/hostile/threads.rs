//! Several threads: they read what is computed with, log, and call the library when they end.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml::prelude::*;
use ggml::{GraphAllocator, ops::CustomOptions};

use super::logger;
use crate::program::{one, spare};

/// Calls the library when its thread ends.
struct Last {
    ctx: Context,
    what: u32,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Drop for Last {
    fn drop(&mut self) {
        errand(&self.ctx, self.what);
    }
}

/// A few calls, some of which log and some of which fail.
fn errand(ctx: &Context, what: u32) {
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.neg(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    match what {
        0 => graph.print().unwrap(),
        1 => {
            let huge = ctx.neg(ctx.input("huge", DType::F32, [1 << 25, 1 << 21]).unwrap()).unwrap();
            let huge = ctx.graph([huge]).unwrap();
            let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
            assert!(matches!(allocator.alloc(&huge, &mut one()), Err(Error::OutOfMemory { .. })), "256 TiB");
        }
        2 => {
            let mut builder = WeightsBuilder::new();
            builder.tensor("huge", DType::F32, [1 << 25, 1 << 21]).unwrap();
            assert!(builder.place(Device::cpu().unwrap().buffer_type()).is_err(), "256 TiB");
        }
        _ => {
            let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
            let mut backend = Backend::cpu().unwrap();
            backend.set_threads(1).unwrap();
            let mut run = allocator.alloc(&graph, &mut backend).unwrap();
            run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
            run.compute().unwrap();
            assert_eq!(run.get::<f32>(y).unwrap(), [-1.0, -2.0, -3.0, -4.0]);
        }
    }
}

/// Does its errand in a thread of its own, and another when that ends.
fn thread(mut rng: fastrand::Rng) {
    let last = |what| Last { ctx: Context::new(), what };
    let at_end = rng.u32(..4);
    // Destructors run in an order that depends on what was there first.
    let first = rng.bool();
    if first {
        LAST.set(Some(last(at_end)));
    }
    let before = logger::lines();
    let what = rng.u32(..4);
    errand(&Context::new(), what);
    assert!(what > 0 || logger::lines() > before, "no line was logged");
    if rng.bool() {
        logger::panic_next();
        let result = catch_unwind(AssertUnwindSafe(|| errand(&Context::new(), 0)));
        let later = catch_unwind(AssertUnwindSafe(|| errand(&Context::new(), 3)));
        assert!(!logger::calm(), "nothing was logged");
        assert!(result.is_err() || later.is_err(), "a logger's panic was lost");
    }
    if !first {
        LAST.set(Some(last(at_end)));
    }
}

/// Computes with weights that other threads read, in a custom operation too.
pub(super) fn program(rng: &mut fastrand::Rng) {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [64, 4]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let values: Vec<f32> = (0..256).map(|_| rng.i32(-8..8) as f32).collect();
    weights.set("w", &values).unwrap();
    let ctx = Context::new();
    let w = weights.tensor("w").unwrap();
    let x = ctx.input("x", DType::F32, [64, 4]).unwrap();
    let mut y = ctx.add(w, x).unwrap();
    if rng.bool() {
        y = ctx
            .map_custom1::<f32>(y, CustomOptions::new(), |out, x| {
                for (i, row) in out {
                    row.copy_from_slice(x.row(i));
                }
            })
            .unwrap();
    }
    let graph = ctx.graph([y]).unwrap();
    let data: Vec<f32> = (0..256).map(|_| rng.i32(-8..8) as f32).collect();
    let want: Vec<f32> = values.iter().zip(&data).map(|(w, x)| w + x).collect();
    let mut sched = spare();
    let (weights, values) = (&weights, &values);
    std::thread::scope(|scope| {
        for _ in 0..rng.usize(1..3) {
            let errands = rng.fork();
            scope.spawn(move || {
                for _ in 0..4 {
                    let bytes = weights.read_bytes("w").unwrap();
                    assert_eq!(bytes, bytemuck::cast_slice::<f32, u8>(values), "weights changed");
                }
                thread(errands);
            });
        }
        for _ in 0..4 {
            let mut run = sched.alloc(&graph).unwrap();
            run.set(x, &data).unwrap();
            run.compute().unwrap();
            assert_eq!(run.get::<f32>(y).unwrap(), want);
        }
    });
}
