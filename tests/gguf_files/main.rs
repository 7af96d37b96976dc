//! GGUF files: compared with ggml's own functions, and placed on devices. The crate `ggml-gguf` tests reading and writing.

#![cfg(test)]

mod against_c;
mod mutated;
mod placing;

use std::path::PathBuf;

use ggml::DType;
use ggml::gguf::{Reader, Value};

/// A file with a value of every type and with tensors of several types, of which some sizes are multiples of the alignment.
/// The crate `ggml-gguf` tests that its writer writes these bytes.
fn everything() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/ggml-gguf/tests/everything.gguf")).unwrap()
}

fn values() -> Vec<(String, Value)> {
    let reader = Reader::from_bytes(everything()).unwrap();
    reader.key_values().map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

fn tensors() -> Vec<(String, DType, [i64; 4], Vec<u8>)> {
    let reader = Reader::from_bytes(everything()).unwrap();
    let data = |name| reader.data(name).unwrap().to_vec();
    reader.tensors().map(|t| (t.name().to_owned(), t.dtype(), t.shape().ne(), data(t.name()))).collect()
}

/// Creates a new, empty folder.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("gguf-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}
