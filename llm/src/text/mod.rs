//! Text of language models: tokenizers, streamed text, chat templates and samplers.
//!
//! All of it comes from the metadata of a model's GGUF file, and gives what llama.cpp gives for the same file.

mod alphabet;
mod bpe;
mod error;
mod merge;
mod metadata;
mod pre;
mod sampler;
mod special;
mod spm;
mod stream;
mod template;
mod tokenizer;
mod vocabulary;
mod wordpiece;

pub use alphabet::CHARACTERS as BYTE_CHARACTERS;
pub use error::{Error, Result};
pub use sampler::{Sampler, SamplerOptions};
pub use stream::TokenStream;
pub use template::{ChatTemplate, Message};
pub use tokenizer::Tokenizer;
