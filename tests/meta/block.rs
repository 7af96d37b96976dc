//! Transformer blocks, compared with the definition and with one device.

use ggml::ops::{FlashAttnOptions, GluOp, RopeMode};
use ggml::prelude::*;

use crate::support::{Matrix, assert_close, meta, noise, place, run, wide};

const WIDTH: usize = 64;
const HIDDEN: usize = 192;

fn up_and_down(dtype: DType) -> [Matrix; 2] {
    [
        Matrix::new("up.1", dtype, [WIDTH as i64, HIDDEN as i64]),
        Matrix::new("down.0", dtype, [HIDDEN as i64, WIDTH as i64]),
    ]
}

fn feed_forward(device: Device, dtype: DType, x: &[f32]) -> Vec<f32> {
    let weights = place(device, &up_and_down(dtype));
    let ctx = Context::new();
    run(device, &ctx, (x, &[WIDTH as i64, (x.len() / WIDTH) as i64]), |x| {
        let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up.1")?, x)?)?;
        ctx.add(ctx.mul_mat(weights.tensor("down.0")?, hidden)?, x)
    })
    .unwrap()
}

/// Rows of `up` and columns of `down` on each device: a single all-reduce at the end.
#[test]
fn meta_feed_forward_equals_one_device() {
    let x = noise(WIDTH * 3, 5);
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::Q8_0, 0.02), (DType::Q4_0, 0.02)] {
        let [up, down] = up_and_down(dtype);
        let want: Vec<f64> = x
            .chunks(WIDTH)
            .flat_map(|x| {
                let x = wide(x);
                let hidden: Vec<_> = up.times(&x).into_iter().map(|h| h.max(0.0)).collect();
                down.times(&hidden).into_iter().zip(x).map(|(y, x)| y + x).collect::<Vec<_>>()
            })
            .collect();
        let one = feed_forward(Device::cpu().unwrap(), dtype, &x);
        for n in [2, 3] {
            let got = feed_forward(meta(n), dtype, &x);
            assert_close(&got, &want, tolerance, &format!("{dtype:?} on {n}, by the definition"));
            assert_close(&got, &wide(&one), 1e-5, &format!("{dtype:?} on {n}, by one device"));
        }
    }
}

const HEADS: i64 = 6;
const HEAD: i64 = 64;
const TOKENS: i64 = 5;

/// A whole layer: multi-head attention with rotary positions (both implementations), and a gated feed-forward block.
fn layer(device: Device, flash: bool, kv_heads: i64, x: &[f32]) -> Vec<f32> {
    let width = HEADS * HEAD;
    let matrix = |name, ne| Matrix::new(name, DType::F32, ne);
    let weights = place(
        device,
        &[
            matrix("q.1", [width, width]),
            matrix("k.1", [width, kv_heads * HEAD]),
            matrix("v.1", [width, kv_heads * HEAD]),
            matrix("o.0", [width, width]),
            matrix("gate.1", [width, 2 * width]),
            matrix("up.1", [width, 2 * width]),
            matrix("down.0", [2 * width, width]),
            matrix("norm", [width, 1]),
        ],
    );
    let ctx = Context::new();
    run(device, &ctx, (x, &[width, TOKENS]), |x| {
        let w = |name| weights.tensor(name);
        let positions = ctx.input("positions", DType::I32, [TOKENS])?;
        let normal = ctx.mul(ctx.rms_norm(x, 1e-5)?, w("norm")?)?;
        let heads = |name, heads: i64| ctx.reshape(ctx.mul_mat(w(name)?, normal)?, [HEAD, heads, TOKENS]);
        let turn = |t| ctx.rope(t, positions, HEAD as i32, RopeMode::Normal);
        let q = ctx.permute(turn(heads("q.1", HEADS)?)?, [0, 2, 1, 3])?;
        let k = ctx.permute(turn(heads("k.1", kv_heads)?)?, [0, 2, 1, 3])?;
        let v = heads("v.1", kv_heads)?;
        let scale = 1.0 / (HEAD as f32).sqrt();
        let merged = if flash {
            let v = ctx.cast(ctx.permute(v, [0, 2, 1, 3])?, DType::F16)?;
            let how = FlashAttnOptions::new(scale);
            ctx.flash_attn_ext(q, ctx.cast(k, DType::F16)?, v, how)?
        } else {
            let v = ctx.cont(ctx.permute(v, [1, 2, 0, 3])?)?;
            let scores = ctx.soft_max(ctx.scale(ctx.mul_mat(k, q)?, scale)?)?;
            ctx.cont(ctx.permute(ctx.mul_mat(v, scores)?, [0, 2, 1, 3])?)?
        };
        let attended = ctx.add(ctx.mul_mat(w("o.0")?, ctx.reshape(merged, [width, TOKENS])?)?, x)?;
        let normal = ctx.rms_norm(attended, 1e-5)?;
        let [gate, up] = [ctx.mul_mat(w("gate.1")?, normal)?, ctx.mul_mat(w("up.1")?, normal)?];
        let hidden = ctx.glu_split(gate, up, GluOp::Swiglu)?;
        ctx.add(ctx.mul_mat(w("down.0")?, hidden)?, attended)
    })
    .unwrap()
}

/// Heads are split among devices, with as many key heads as query heads and with fewer.
#[test]
fn meta_attention_layer_equals_one_device() {
    let x = noise((HEADS * HEAD * TOKENS) as usize, 3);
    for (flash, kv_heads) in [(false, HEADS), (true, HEADS), (true, 2)] {
        let one = layer(Device::cpu().unwrap(), flash, kv_heads, &x);
        for n in [2, 3] {
            if kv_heads % n as i64 != 0 {
                continue; // a head is not divided
            }
            let tolerance = if flash { 1e-3 } else { 1e-5 };
            assert_close(
                &layer(meta(n), flash, kv_heads, &x),
                &wide(&one),
                tolerance,
                &format!("{flash} {kv_heads} on {n}"),
            );
        }
    }
}
