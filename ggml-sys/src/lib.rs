//! Raw declarations of [ggml](https://github.com/ggml-org/ggml), compiled from pinned sources and linked statically.
//!
//! The functions are declared `extern "C-unwind"`: ggml's abort callback may throw. [`IntoUnwind`] accepts callbacks that
//! are `extern "C"`. Enums are integer constants.
//! Safe bindings are in the crate `ggml`.
#![no_std]

include!(concat!(env!("OUT_DIR"), "/config.rs"));

mod bindings;
mod callback;

pub use bindings::*;
pub use callback::IntoUnwind;
