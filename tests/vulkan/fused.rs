//! Whole graphs, in which the backend fuses and reorders operations.

use ggml::prelude::*;
use ggml::{
    GraphAllocator, Result,
    ops::{RopeMode, RopeOptions},
};

use libtest_mimic::Trial;
use testkit::bench::Bench;

use crate::beside::distance;
use crate::ops::LAVAPIPE;
use crate::{REACH, backend, cpu};

fn same(build: impl for<'c> Fn(&Bench<'c>) -> Result<Tensor<'c>>) {
    let ctx = Context::new();
    let bench = Bench::new(&ctx, REACH);
    let y = build(&bench).unwrap();
    let (got, want) = (bench.run(y, &mut backend()).unwrap(), bench.run(y, &mut cpu()).unwrap());
    let far = distance(&got, &want);
    assert!(far < 5e-3 && got.iter().all(|x| x.is_finite()), "{far}");
}

fn fused_add_equals_cpu() {
    same(|b| (0..9).try_fold(b.f32([64, 7]), |sum, _| b.ctx.add(sum, b.f32([64, 7]))));
}

fn fused_rms_norm_and_mul_equals_cpu() {
    same(|b| b.ctx.mul(b.ctx.rms_norm(b.f32([64, 7, 2]), 1e-5)?, b.f32([64])));
}

fn fused_rms_norm_mul_and_add_equals_cpu() {
    same(|b| b.ctx.add(b.ctx.mul(b.ctx.rms_norm(b.f32([64, 7]), 1e-5)?, b.f32([64]))?, b.f32([64, 7])));
}

fn fused_mul_mat_and_add_equals_cpu() {
    same(|b| b.ctx.add(b.ctx.mul_mat(b.f32([64, 20]), b.f32([64, 1]))?, b.f32([20])));
}

fn fused_silu_and_mul_equals_cpu() {
    same(|b| b.ctx.mul(b.ctx.silu(b.f32([64, 7]))?, b.f32([64, 7])));
    same(|b| b.ctx.mul(b.f32([64, 7]), b.ctx.sigmoid(b.f32([64, 7]))?));
}

/// A layer with attention, without flash attention.
fn transformer_layer_equals_cpu() {
    same(|b| {
        let (width, heads, tokens) = (64, 2, 7);
        let x = b.f32([width, tokens]);
        let normed = b.ctx.mul(b.ctx.rms_norm(x, 1e-5)?, b.f32([width]))?;
        let positions = b.ints([tokens], 0..tokens as i32);
        let project = || -> Result<Tensor<'_>> {
            let w = b.within(DType::F32, [width, width], -0.2, 0.2);
            b.ctx.reshape(b.ctx.mul_mat(w, normed)?, [width / heads, heads, tokens])
        };
        let q = b
            .ctx
            .permute(b.ctx.rope_ext(project()?, positions, RopeOptions::new(32, RopeMode::NeoX))?, [0, 2, 1, 3])?;
        let k = b
            .ctx
            .permute(b.ctx.rope_ext(project()?, positions, RopeOptions::new(32, RopeMode::NeoX))?, [0, 2, 1, 3])?;
        let v = b.ctx.cont(b.ctx.permute(project()?, [1, 2, 0, 3])?)?;
        let scores = b.ctx.soft_max(b.ctx.diag_mask_inf(b.ctx.scale(b.ctx.mul_mat(k, q)?, 0.18)?, 0)?)?;
        let mixed = b.ctx.permute(b.ctx.mul_mat(v, scores)?, [0, 2, 1, 3])?;
        let mixed = b.ctx.reshape(b.ctx.cont(mixed)?, [width, tokens])?;
        let x = b.ctx.add(b.ctx.mul_mat(b.within(DType::F32, [width, width], -0.2, 0.2), mixed)?, x)?;
        let normed = b.ctx.mul(b.ctx.rms_norm(x, 1e-5)?, b.f32([width]))?;
        let up = |to| b.ctx.mul_mat(b.within(DType::F32, [width, to], -0.2, 0.2), normed);
        let hidden = b.ctx.swiglu_split(up(96)?, up(96)?)?;
        b.ctx.add(b.ctx.mul_mat(b.within(DType::F32, [96, width], -0.2, 0.2), hidden)?, x)
    });
}

/// A KV cache that one graph writes and reads, through views.
fn state_written_by_a_graph_is_read_after() {
    let numbers = |i: usize| -> Vec<f32> { (0..128).map(|j| ((j * 5 + i * 11) % 19) as f32 - 9.0).collect() };
    let run = |mut backend: Backend| {
        let mut builder = WeightsBuilder::new();
        builder.tensor("cache", DType::F32, [64, 8]).unwrap();
        let state = builder.place_state(backend.device().buffer_type()).unwrap();
        let mut sums = Vec::new();
        for step in 0..4 {
            let ctx = Context::new();
            let x = ctx.input("x", DType::F32, [64, 2]).unwrap();
            let cache = state.tensor("cache").unwrap();
            let place = ctx.view(cache, [64_i64, 2], [256, 512, 512], step * 512).unwrap();
            let before = ctx.sum_rows(ctx.sqr(ctx.dup(cache).unwrap()).unwrap()).unwrap();
            let written = ctx.cpy(ctx.scale(x, 0.5).unwrap(), place).unwrap();
            let after = ctx.sum_rows(ctx.sqr(cache).unwrap()).unwrap();
            let graph = ctx.graph([before, written, after]).unwrap();
            let mut allocator = GraphAllocator::new(backend.device().buffer_type());
            let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
            memory.set(x, &numbers(step)).unwrap();
            memory.compute().unwrap();
            sums.push(memory.get::<f32>(before).unwrap());
            sums.push(memory.get::<f32>(after).unwrap());
        }
        sums.push(state.tensor("cache").unwrap().read::<f32>().unwrap());
        sums.concat()
    };
    let far = distance(&run(backend()), &run(cpu()));
    assert!(far < 1e-3, "{far}");
}

testkit::trials! {
    fused_add_equals_cpu,
    fused_rms_norm_and_mul_equals_cpu,
    fused_mul_mat_and_add_equals_cpu,
    fused_silu_and_mul_equals_cpu,
    state_written_by_a_graph_is_read_after,
}

/// Tests that lavapipe can't run; listed as ignored there.
pub(crate) fn hard_trials() -> Vec<Trial> {
    let [_, one, two] = LAVAPIPE;
    let hard: [(&str, (&str, &str), fn()); 2] = [
        ("fused_rms_norm_mul_and_add_equals_cpu", one, fused_rms_norm_mul_and_add_equals_cpu),
        ("transformer_layer_equals_cpu", two, transformer_layer_equals_cpu),
    ];
    let trial = |(test, (what, why), f): (&str, (&str, &str), fn())| {
        testkit::trials::trial(&format!("vulkan::fused::{test} ({what}: {why})"), f)
            .with_ignored_flag(crate::is_software())
    };
    hard.map(trial).into()
}
