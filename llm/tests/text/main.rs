//! Text: tokenizers, streams, chat templates and samplers. `cargo xtask text-check` compares tokenizers with llama.cpp's.
#![cfg(test)]
#![allow(clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "token ids and counts are small")]

mod files;
mod sampler;
mod stream;
mod template;
mod tokenizer;
