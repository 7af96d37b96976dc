//! Long graphs and large tensors, for which memory may run out in the middle of any call.

use ggml::prelude::*;
use ggml::{GraphAllocator, Result};

use super::limit;
use crate::program::{World, one, spare};

/// What programs of this kind need.
struct Tight {
    /// Bytes that are left for each call.
    left: u64,
    ran_out: bool,
    trace: bool,
}

impl Tight {
    /// A call with little memory: its value, unless it failed for want of it.
    fn call<R>(&mut self, name: &str, f: impl FnOnce() -> Result<R>) -> Option<R> {
        let result = limit::with_left(self.left, f);
        if self.trace {
            crate::say(format_args!("    {name}: {:?}", result.as_ref().err()));
        }
        match result {
            Ok(value) => Some(value),
            Err(Error::OutOfMemory { .. }) => {
                self.ran_out = true;
                None
            }
            Err(e) => panic!("{name} without memory: {e}"),
        }
    }
}

/// One chain of operations, allocated and computed while memory is short, and then once more while it is not.
pub(super) fn program(world: &mut World, rng: &mut fastrand::Rng) {
    if !limit::is_there() || !world.alone {
        return;
    }
    let size = |rng: &mut fastrand::Rng, from: u32, to: u32| 1_u64 << rng.u32(from..to);
    // Either is long; both would take long.
    let long = rng.bool();
    let length = if long {
        {
            let most = if rng.u32(..8) == 0 { 17 } else { 14 };
            size(rng, 8, most) + rng.u64(..256)
        }
    } else {
        rng.u64(1..20)
    };
    let elements = if long { 4 } else { size(rng, 10, 22) };
    let mut tight = Tight { left: size(rng, 12, 26) + rng.u64(..65536), ran_out: false, trace: world.trace };
    if world.trace {
        crate::say(format_args!("  {length} operations on {elements} elements, {} bytes left", tight.left));
    }
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [elements as i64]).unwrap();
    let chain = |length: u64| (0..length).try_fold(x, |y, i| if i % 2 == 0 { ctx.neg(y) } else { ctx.scale(y, 1.0) });
    let kinds = ["build", "graph", "allocate", "compute"];
    let from = rng.usize(..kinds.len());
    let y = if from == 0 { tight.call("build", || chain(length)) } else { None };
    // Whatever failed, the same can be done when there is memory.
    let y = y.unwrap_or_else(|| chain(length).unwrap());
    let graph = if from <= 1 { tight.call("graph", || ctx.graph([y])) } else { None };
    let graph = graph.unwrap_or_else(|| ctx.graph([y]).unwrap());
    let mut sched = spare();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut backend = one();
    let on_one = rng.bool();
    for attempt in 0..2 {
        if from > 2 {
            break;
        }
        if attempt > 0 {
            tight.left *= 4;
        }
        if on_one {
            if rng.bool() {
                tight.call("sizes", || allocator.sizes(&graph));
            }
            tight.call("allocate on one device", || allocator.alloc(&graph, &mut backend).map(drop));
        } else {
            tight.call("allocate", || if rng.bool() { sched.alloc(&graph).map(drop) } else { sched.reserve(&graph) });
        }
    }
    let values: Vec<f32> = (0..elements).map(|i| (i % 97) as f32 - 48.0).collect();
    let sign = if length.div_ceil(2) % 2 == 0 { 1.0 } else { -1.0 };
    let right = |got: &[f32]| got.iter().zip(&values).all(|(g, v)| *g == sign * v) && got.len() == values.len();
    let mut run = if on_one { allocator.alloc(&graph, &mut backend) } else { sched.alloc(&graph) }.unwrap();
    if tight.call("set", || run.set(x, &values)).is_none() {
        run.set(x, &values).unwrap();
    }
    if tight.call("compute", || run.compute()).is_none() {
        run.compute().unwrap();
    }
    let got = tight.call("get", || run.get::<f32>(y)).unwrap_or_else(|| run.get(y).unwrap());
    assert!(right(&got), "wrong numbers after memory was short");
    world.stats.hostile.out_of_memory += u64::from(tight.ran_out);
}
