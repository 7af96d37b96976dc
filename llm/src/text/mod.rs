//! Text of language models: tokenizers, streamed text, chat templates and samplers.
//!
//! All of it comes from the metadata of a model's GGUF file, and gives what llama.cpp gives for the same file.

mod alphabet;
mod bpe;
mod charsmap;
mod error;
mod jinja;
mod merge;
mod metadata;
mod pre;
mod sampler;
mod special;
mod spm;
mod stops;
mod stream;
mod template;
mod tokenizer;
mod ugm;
mod vocabulary;
mod wordpiece;

pub use alphabet::CHARACTERS as BYTE_CHARACTERS;
pub use error::{TextError, TextResult};
pub use sampler::{Sampler, SamplerOptions};
pub use stops::StopStrings;
pub use stream::TokenStream;
pub use template::{ChatTemplate, Message};
pub use tokenizer::Tokenizer;
