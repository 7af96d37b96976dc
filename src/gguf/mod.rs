//! GGUF files: the metadata and tensors of a model, as ggml and the programs built on it store them.
//!
//! [`Reader`] reads the header of a file, checks it against the file's length, and loads the tensors: copied
//! ([`Reader::load`]), in chunks ([`Reader::stream`]), or zero-copy from a mapped file ([`Reader::map`]). [`Writer`]
//! writes a file from data in memory, or from data that closures produce during the write.
//!
//! ```
//! use ggml::gguf::{Reader, Writer};
//! use ggml::prelude::*;
//! # fn main() -> ggml::Result<()> {
//! let mut writer = Writer::new();
//! writer.set("general.architecture", "example")?;
//! writer.tensor("scale", DType::F32, [2], &[0, 0, 128, 63, 0, 0, 0, 64])?;
//!
//! let reader = Reader::from_bytes(writer.to_bytes()?)?;
//! let memory = Device::cpu()?.buffer_type();
//! let weights = reader.load(|_| memory)?;
//! # #[cfg(target_endian = "little")]
//! assert_eq!(weights.tensor("scale")?.read::<f32>()?, [1.0, 2.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is accepted
//!
//! Versions 2 and 3 in the byte order of the machine, under ggml's own rules: keys and tensor names are unique, names
//! have at most 63 bytes, strings and arrays at most 2^30 bytes and values, arrays don't nest, and the only gaps
//! between tensors are the alignment's padding. Memory use grows with what was read, not with the counts that a file
//! claims. This module also refuses files that ggml accepts but that would fail later: data that ends before the last
//! tensor does, tensors without elements, strings that are not UTF-8, and booleans that are neither 0 nor 1.

// The C functions (gguf_*) are not used, for these reasons:
// - They return strings without a length, so everything after a NUL is lost; keys are compared up to the NUL too.
// - Without a ggml context they don't compare the data section with the file; with one, a crafted shape or size aborts
//   the process.
// - Several accessors don't check an index or divide by zero, and writing a file that was read uses uninitialised
//   fields.
// - std::bad_alloc unwinds out of them, and what they had allocated leaks.
// The format is small enough to read in safe Rust, without `unsafe`. `tests/gguf_files/against_c.rs` compares both
// implementations.

mod file;
mod header;
mod parse;
mod reader;
mod stream;
mod strings;
mod table;
mod value;
mod writer;

use std::borrow::Cow;

use ggml_sys as sys;

use crate::error::Error;

pub use header::TensorInfo;
pub use reader::Reader;
pub use strings::Strings;
pub use value::{Array, Value};
pub use writer::Writer;

/// The first bytes of a GGUF file.
const MAGIC: &[u8] = b"GGUF";

/// The version that [`Writer`] writes.
const VERSION: u32 = sys::GGUF_VERSION;

/// The metadata key of the tensor data's alignment.
const ALIGNMENT_KEY: &str = "general.alignment";

/// The maximum length of a tensor name in bytes: C stores it NUL-terminated in a fixed-size field.
const MAX_NAME: usize = sys::GGML_MAX_NAME as usize - 1;

fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::Gguf { reason: reason.into(), log: Box::default() }
}

/// The alignment from the metadata, or the default.
///
/// # Errors
///
/// Says what is wrong with the value.
fn alignment(value: Option<&Value>) -> Result<u32, &'static str> {
    match value {
        None => Ok(sys::GGUF_DEFAULT_ALIGNMENT),
        Some(&Value::U32(n)) if n.is_power_of_two() => Ok(n),
        Some(_) => Err("it must be a u32 that is a power of two"),
    }
}

/// Why ggml can't store this tensor name; `None` if it can.
fn name_fault(name: &str) -> Option<&'static str> {
    if name.len() > MAX_NAME {
        Some("a tensor's name may have at most 63 bytes")
    } else if name.contains('\0') {
        Some("a tensor's name may hold no NUL")
    } else {
        None
    }
}
