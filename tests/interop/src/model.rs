//! A model of the LLaMA architecture, small and random, written and computed by this crate.

use std::path::Path;

use ggml::gguf::{Reader, Writer};
use ggml::prelude::*;

use crate::Result;

pub const VOCABULARY: usize = 24;
const EMBEDDING: usize = 32;
const HIDDEN: usize = 64;
const HEADS: u32 = 2;
const EPSILON: f32 = 1e-5;

/// What is asked. One token, and the first: attention is then over itself alone, so its result is the value, and the
/// rotation by position is by nothing.
pub const TOKEN: i32 = 7;

/// The tensors, in the order of their dimensions in ggml.
const TENSORS: &[(&str, [usize; 2])] = &[
    ("token_embd.weight", [EMBEDDING, VOCABULARY]),
    ("blk.0.attn_norm.weight", [EMBEDDING, 1]),
    ("blk.0.attn_q.weight", [EMBEDDING, EMBEDDING]),
    ("blk.0.attn_k.weight", [EMBEDDING, EMBEDDING]),
    ("blk.0.attn_v.weight", [EMBEDDING, EMBEDDING]),
    ("blk.0.attn_output.weight", [EMBEDDING, EMBEDDING]),
    ("blk.0.ffn_norm.weight", [EMBEDDING, 1]),
    ("blk.0.ffn_gate.weight", [EMBEDDING, HIDDEN]),
    ("blk.0.ffn_up.weight", [EMBEDDING, HIDDEN]),
    ("blk.0.ffn_down.weight", [HIDDEN, EMBEDDING]),
    ("output_norm.weight", [EMBEDDING, 1]),
    ("output.weight", [EMBEDDING, VOCABULARY]),
];

/// Writes it as llama.cpp reads it.
pub fn write(file: &Path) -> Result<()> {
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama")?;
    let numbers = [
        ("context_length", 32),
        ("embedding_length", EMBEDDING as u32),
        ("block_count", 1),
        ("feed_forward_length", HIDDEN as u32),
        ("attention.head_count", HEADS),
        ("rope.dimension_count", EMBEDDING as u32 / HEADS),
        ("vocab_size", VOCABULARY as u32),
    ];
    for (key, value) in numbers {
        writer.set(&format!("llama.{key}"), value)?;
    }
    writer.set("llama.attention.layer_norm_rms_epsilon", EPSILON)?;
    writer.set("tokenizer.ggml.model", "no_vocab")?;
    let mut state = 1_u32;
    for (name, shape) in TENSORS {
        let count = shape.iter().product();
        let values: Vec<u8> =
            std::iter::repeat_with(|| random(&mut state).to_le_bytes()).take(count).flatten().collect();
        writer.tensor(name, DType::F32, shape.map(|n| n as i64), &values)?;
    }
    Ok(writer.write(file)?)
}

/// A number from -0.5 to 0.5, by a linear congruential generator.
fn random(state: &mut u32) -> f32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) as f32 / (1 << 24) as f32 - 0.5
}

/// The logits of the token.
pub fn compute(file: &Path) -> Result<Vec<f32>> {
    let cpu = Device::cpu()?;
    let weights = Reader::open(file)?.into_memory()?.load(cpu)?;
    let ctx = Context::new();
    let w = |name: &str| weights.tensor(name);
    let norm = |x, name| ctx.mul(ctx.rms_norm(x, EPSILON)?, weights.tensor(name)?);
    let token = ctx.input("token", DType::I32, [1])?;
    let x = ctx.get_rows(w("token_embd.weight")?, token)?;
    let value = ctx.mul_mat(w("blk.0.attn_v.weight")?, norm(x, "blk.0.attn_norm.weight")?)?;
    let x = ctx.add(x, ctx.mul_mat(w("blk.0.attn_output.weight")?, value)?)?;
    let y = norm(x, "blk.0.ffn_norm.weight")?;
    let gate = ctx.silu(ctx.mul_mat(w("blk.0.ffn_gate.weight")?, y)?)?;
    let hidden = ctx.mul(gate, ctx.mul_mat(w("blk.0.ffn_up.weight")?, y)?)?;
    let x = ctx.add(x, ctx.mul_mat(w("blk.0.ffn_down.weight")?, hidden)?)?;
    let logits = ctx.mul_mat(w("output.weight")?, norm(x, "output_norm.weight")?)?;
    let graph = ctx.graph([logits])?;
    let mut sched = Sched::builder().backend(cpu.init()?).build()?;
    let mut run = sched.alloc(&graph)?;
    run.set(token, &[TOKEN])?;
    run.compute()?;
    Ok(run.get(logits)?)
}
