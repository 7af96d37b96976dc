//! An attention head that owns its weights and its KV cache. A mask hides the rows that are still empty, so the graphs of all
//! steps have one shape. The guide's page `decoder` has a whole model.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a program for people to read, small numbers")]

use ggml::prelude::*;

const WIDTH: usize = 4;
const ROOM: usize = 8;

struct Attention {
    weights: Weights,
    qkv: LeafIndex,
    cache: State,
    kv: [LeafIndex; 2],
    ctx: Context,
    sched: Sched,
}

impl Attention {
    fn new() -> ggml::Result<Self> {
        let (mut weights, mut cache) = (WeightsBuilder::new(), WeightsBuilder::new());
        let qkv = weights.tensor("qkv", DType::F32, [WIDTH, 3 * WIDTH])?;
        let keys = cache.tensor("keys", DType::F32, [WIDTH, ROOM])?;
        let kv = [keys, cache.tensor("values", DType::F32, [WIDTH, ROOM])?];
        let (mut weights, cache) = (weights.place(Device::best()?)?, cache.place_state(Device::best()?)?);
        weights.set(qkv, &numbers(3, 3 * WIDTH * WIDTH))?;
        Ok(Self { weights, qkv, cache, kv, ctx: Context::new(), sched: Sched::best()? })
    }

    fn step(&mut self, position: usize, token: &[f32]) -> ggml::Result<Vec<f32>> {
        self.ctx.reset();
        let (ctx, [keys, values]) = (&self.ctx, self.kv.map(|i| self.cache.at(i)));
        let (x, row) = (ctx.input("x", DType::F32, [WIDTH])?, ctx.input("row", DType::I32, [1])?);
        let mask = ctx.input("mask", DType::F32, [ROOM])?;
        let qkv = ctx.mul_mat(self.weights.at(self.qkv), x)?;
        let [q, k, v] = [0, 1, 2].map(|i| ctx.view_1d(qkv, WIDTH, i * WIDTH * size_of::<f32>()));
        let (keys, values) = (ctx.set_rows(keys, k?, row)?, ctx.set_rows(values, v?, row)?); // Written, then read.
        let scores = ctx.add(ctx.scale(ctx.mul_mat(keys, q?)?, 0.5)?, mask)?; // 0.5 = 1 / sqrt(WIDTH)
        let y = ctx.mul_mat(ctx.cont(ctx.transpose(values)?)?, ctx.soft_max(scores)?)?;
        let graph = ctx.graph([y])?;
        let hidden: [f32; ROOM] = std::array::from_fn(|i| if i <= position { 0.0 } else { f32::NEG_INFINITY });
        let inputs = ((x, token), (row, &[i32::try_from(position).unwrap_or(-1)]), (mask, &hidden));
        self.sched.run(&graph, inputs)?.get(y)
    }
}

fn numbers(seed: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 + seed * 3) % 11) as f32 / 5.0 - 1.0).collect()
}

fn main() -> ggml::Result<()> {
    let mut head = Attention::new()?;
    (0..ROOM).try_for_each(|i| head.step(i, &numbers(i, WIDTH)).map(|y| println!("token {i}: {y:.4?}")))?;
    println!("plans={}", head.sched.plans()); // One for all steps.
    Ok(())
}
