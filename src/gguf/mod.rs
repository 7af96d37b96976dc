//! GGUF files: metadata and tensors, as ggml and the programs above it store models.
//!
//! [`Reader`] reads the beginning of a file, checks what it says against the file's length, and brings tensors to where
//! they are to be used: copied ([`Reader::load`]), in pieces ([`Reader::stream`]), or as they lie in a mapped file
//! ([`Reader::map`]). [`Writer`] makes a file, all at once or with data that are told while it is written.
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
//! assert_eq!(weights.get("scale")?.read::<f32>()?, [1.0, 2.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is accepted
//!
//! Versions 2 and 3 in the byte order of the machine, as in ggml itself, and with its rules: keys and tensor names occur
//! once, names have at most 63 bytes, texts and arrays at most 2^30 bytes and values, arrays hold no arrays, and tensors
//! follow each other without gaps other than those that the alignment asks for. Memory grows with what was read, not with
//! what a file announces. Beyond that, this module refuses what ggml lets through and what would go wrong later:
//! data that ends before the last tensor does, tensors without elements, text that is no UTF-8, and booleans that are
//! neither 0 nor 1.

// The C functions (gguf_*) are not used, for these reasons:
// - They hand out strings without their length, so what follows a NUL is lost; they compare keys up to the NUL as well.
// - Read without a ggml context they don't compare the data section with the file; read with one, a crafted shape or
//   size ends the process.
// - Several of their accessors check no index or divide by zero, and writing what was read uses fields that were never
//   set.
// - std::bad_alloc leaves them in the middle of their work; what they had allocated is lost.
// The format is small enough that reading it in safe Rust needs no `unsafe` at all. `tests/gguf_files/against_c.rs`
// holds both against each other.

mod file;
mod header;
mod parse;
mod reader;
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

/// The first bytes of a file.
const MAGIC: &[u8] = b"GGUF";

/// The version that is written.
const VERSION: u32 = sys::GGUF_VERSION;

/// The key of the alignment of tensor data.
const ALIGNMENT_KEY: &str = "general.alignment";

/// The most bytes of a tensor's name: C keeps it in a field of its own with a closing NUL.
const MAX_NAME: usize = sys::GGML_MAX_NAME as usize - 1;

fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::Gguf { reason: reason.into(), log: Box::default() }
}

/// The alignment that the metadata ask for.
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

/// Why no tensor of ggml's can have this name, if so.
fn name_fault(name: &str) -> Option<&'static str> {
    if name.len() > MAX_NAME {
        Some("a tensor's name may have at most 63 bytes")
    } else if name.contains('\0') {
        Some("a tensor's name may hold no NUL")
    } else {
        None
    }
}
