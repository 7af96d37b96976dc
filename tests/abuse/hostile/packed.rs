//! Weights in memory that repacks them, of which devices are asked whatever becomes of allocations.

use ggml::prelude::*;
use ggml::{BufferType, GraphAllocator};
use ggml_draw::ToDot as _;

use super::forever;
use super::kept::Kept;
use crate::program::{World, spare};

/// Memory that takes blocks of this type, if the processor has such.
fn memory(dtype: DType) -> Option<BufferType> {
    let extra = Device::cpu().unwrap().extra_buffer_types().unwrap();
    extra.into_iter().find(|m| m.holds(dtype, [64, 32]).unwrap_or(false))
}

/// Asks what is supported before, while and after a graph is allocated: the answers must be the same.
pub(super) fn program(world: &mut World, rng: &mut fastrand::Rng) {
    let dtype = [DType::Q4_0, DType::Q8_0][rng.usize(..2)];
    let Some(buft) = memory(dtype) else { return };
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", dtype, [64, 32]).unwrap();
    let mut weights = builder.place(buft).unwrap();
    let values: Vec<f32> = (0..64 * 32).map(|_| rng.i32(-1..2) as f32).collect();
    let bytes = dtype.quantize(&values, 64, None).unwrap();
    let values = dtype.dequantize(&bytes).unwrap();
    weights.set_bytes("w", &bytes).unwrap();
    let weights = forever(weights);
    let ctx = forever(Context::new());
    let x = ctx.input("x", DType::F32, [64, 2]).unwrap();
    // Of what is in the middle, memory comes from the allocation too.
    let a = ctx.scale(x, 1.0).unwrap();
    let y = ctx.mul_mat(weights.tensor("w").unwrap(), if rng.bool() { a } else { x }).unwrap();
    let graph = forever(ctx.graph([y]).unwrap());
    let cpu = Device::cpu().unwrap();
    let answers = || (cpu.supports_op(y).unwrap(), cpu.offloads(y).unwrap(), graph.to_dot().unwrap());
    let before = answers();
    let data: Vec<f32> = (0..128).map(|_| rng.i32(-1..2) as f32).collect();
    let want = |i: usize, j: usize| -> f32 { (0..64).map(|k| values[64 * i + k] * data[64 * j + k]).sum() };
    let mut kept = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let one = if rng.bool() {
            Kept::sched(spare(), graph)
        } else {
            Kept::allocator(GraphAllocator::new(cpu.buffer_type()), graph)
        };
        assert_eq!(answers(), before, "while a graph is allocated");
        match one {
            Ok(one) if world.leak && rng.bool() => {
                one.forget(rng.u32(..4) == 0);
                world.stats.hostile.forgot += 1;
            }
            Ok(one) => kept.push(one),
            Err(e) => world.stats.refuse(&e),
        }
        assert_eq!(answers(), before, "after a graph was forgotten");
    }
    drop(kept);
    assert_eq!(answers(), before, "after allocations went");
    let mut sched = spare();
    let mut run = sched.alloc(graph).unwrap();
    run.set(x, &data).unwrap();
    run.compute().unwrap();
    let got = run.get::<f32>(y).unwrap();
    for (n, g) in got.iter().enumerate() {
        let w = want(n % 32, n / 32);
        assert!((g - w).abs() < 1.0, "element {n} is {g}, should be {w}");
    }
}
