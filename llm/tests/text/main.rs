//! Text: tokenizers, streams, chat templates and samplers. `cargo xtask text-check` compares tokenizers with llama.cpp's.
#![cfg(test)]

mod files;
mod sampler;
mod stream;
mod template;
mod tokenizer;
