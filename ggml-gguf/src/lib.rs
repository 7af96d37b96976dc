//! GGUF files: the metadata and tensors of a model, as ggml and the programs built on it store them.
//!
//! [`Reader`] reads the header of a file and checks it against the file's length. It gives the data of tensors from memory
//! ([`Reader::data`]) or from a stream ([`Reader::read`], [`Reader::read_into`]). [`Writer`] writes a file from data in
//! memory, or from data that closures produce during the write. What a reader gives, a writer takes.
//!
//! ```
//! use ggml_gguf::{DType, Reader, Writer};
//! # fn main() -> ggml_gguf::Result<()> {
//! let mut writer = Writer::new();
//! writer.set("general.architecture", "example")?;
//! writer.tensor("scale", DType::F32, [2], &[0, 0, 128, 63, 0, 0, 0, 64])?;
//!
//! let reader = Reader::from_bytes(writer.to_bytes()?)?;
//! assert_eq!(reader.metadata("general.architecture").and_then(|value| value.as_str()), Some("example"));
//! assert_eq!(reader.data("scale")?, [0, 0, 128, 63, 0, 0, 0, 64]);
//! # Ok(())
//! # }
//! ```
//!
//! This crate is Rust alone and links no ggml. The crate `ggml` re-exports it as `ggml::gguf`, loads tensors onto devices,
//! and converts numbers to and from quantised types.
//!
//! # What is accepted
//!
//! Versions 2 and 3 in the byte order of the machine, under ggml's own rules: keys and tensor names are unique, names
//! have at most 63 bytes, strings and arrays at most 2^30 bytes and values, arrays don't nest, and the only gaps
//! between tensors are the alignment's padding. Memory use grows with what was read, not with the counts that a file
//! claims. This crate also refuses files that ggml accepts but that would fail later: data that ends before the last
//! tensor does, tensors without elements, strings that are not UTF-8, booleans that are neither 0 nor 1, and keys that hold
//! a NUL or have more than 65535 bytes, the format's limit.

//! # Features
//!
//! `serde` lets `DType`, `Shape`, `Value`, `Array` and `Strings` be serialised. `safetensors` reads and writes files of that
//! format: `Reader::from_safetensors`, `Writer::to_safetensors`. Neither is on by default.

#![forbid(unsafe_code)]
// The features that items need, in the docs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The C functions (gguf_*) are not used, for these reasons:
// - They return strings without a length, so everything after a NUL is lost; keys are compared up to the NUL too.
// - Without a ggml context they don't compare the data section with the file; with one, a crafted shape or size aborts
//   the process.
// - Several accessors don't check an index or divide by zero, and writing a file that was read uses uninitialised
//   fields.
// - std::bad_alloc unwinds out of them, and what they had allocated leaks.
// The format is small enough to read in safe Rust. The tests of the crate `ggml` compare both implementations.

mod dtype;
mod error;
mod file;
mod format;
mod header;
mod parse;
mod reader;
mod room;
#[cfg(feature = "safetensors")]
mod safetensors;
#[cfg(feature = "serde")]
mod serial;
mod shape;
mod shown;
mod stored;
mod stream;
mod strings;
mod table;
mod value;
mod writer;

pub use dtype::DType;
pub use error::{Error, Result};
pub use header::TensorInfo;
pub use reader::Reader;
pub use shape::{Shape, ShapeError};
#[doc(hidden)] // for the errors of the crate `ggml`
pub use shown::{Available, Needs, Shown};
pub use strings::Strings;
pub use value::{Array, Value};
pub use writer::Writer;

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
