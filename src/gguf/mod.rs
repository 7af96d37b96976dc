//! GGUF files: the metadata and tensors of a model, as ggml and the programs built on it store them.
//!
//! [`Reader`] and [`Writer`] are those of the crate `ggml-gguf`, which reads and writes files without C. This module adds
//! [`Load`], which places a file's tensors on devices: copied ([`Load::load`]), in chunks ([`Load::stream`]), or zero-copy
//! from a mapped file ([`Load::map`]).
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
//! let weights = reader.load(memory)?;
//! # #[cfg(target_endian = "little")]
//! assert_eq!(weights.tensor("scale")?.read::<f32>()?, [1.0, 2.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Reading and writing fail with an [`Error`] of their own, which `?` turns into [`ggml::Error`](crate::Error).

mod error;
mod load;

pub use ggml_gguf::{Array, Error, Reader, Strings, TensorInfo, Value, Writer};
pub use load::Load;
