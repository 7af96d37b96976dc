//! Safe bindings to [ggml](https://github.com/ggml-org/ggml), the tensor library of llama.cpp and whisper.cpp.
//!
//! A computation is described in a [`Context`], collected in a [`Graph`], given memory by a [`Sched`] on one or several
//! devices, and computed as often as needed. Constant data are in [`Weights`], data that computations change in a
//! [`State`].
//!
//! ```
//! use ggml::prelude::*;
//! # fn main() -> ggml::Result<()> {
//! // Weights: named tensors with memory of their own, read-only while in use.
//! let mut builder = WeightsBuilder::new();
//! builder.tensor("up", DType::F32, [4, 8])?;
//! builder.tensor("down", DType::F32, [8, 2])?;
//! let mut weights = builder.place(Device::best()?)?;
//! weights.set("up", &[0.5_f32; 32])?;
//! weights.set("down", &[0.25_f32; 16])?;
//!
//! // A computation, written down. Shapes begin with the innermost dimension:
//! // 3 rows of 4 columns are `[4, 3]`.
//! let ctx = Context::new();
//! let x = ctx.input("x", DType::F32, [4, 3])?;
//! let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up")?, x)?)?;
//! let y = ctx.soft_max(ctx.mul_mat(weights.tensor("down")?, hidden)?)?;
//! let graph = ctx.graph([y])?;
//!
//! // A scheduler gives the graph memory on the devices, sets its inputs and computes.
//! let mut sched = Sched::best()?;
//! assert_eq!(sched.run(&graph, (x, &[1.0_f32; 12]))?.get::<f32>(y)?, [0.5; 6]);
//! # Ok(())
//! # }
//! ```
//!
//! | to | see |
//! |---|---|
//! | learn it | [`guide`]: [shapes](mod@guide::shapes), [memory](guide::memory), [graphs](guide::graphs), … |
//! | add operations | [`Context`], with a method for each; their options are in [`ops`] |
//! | load and write models | [`gguf`], [`WeightsBuilder`], [`Quantize`] |
//! | choose devices | [`Device`], [`Backend`], [`BufferType`] |
//! | compute on one device, without a scheduler | [`GraphAllocator`] |
//! | compare devices, see results on the way, measure time | [`run`] |
//! | train | [`opt`] |
//! | use other machines, and all GPUs at once | `rpc` (a feature, on by default), [`meta`] |
//! | write a device in Rust | [`driver`], [`guide::driver`] |
//! | understand an error | [`Error`], [`guide::errors`] |
//! | use arrays of `ndarray`, files of `safetensors`, `serde` | features of these names, [`guide::friends`] |
//!
//! Names are ggml's without the prefix. To find a C function, search these docs for its full name.

#![cfg_attr(not(test), deny(clippy::disallowed_types))]
// The docs show which features items need.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod alloc;
#[cfg(feature = "ndarray")]
pub mod arrays;
mod backend;
mod buffer;
mod callback;
mod context;
pub mod cpu;
mod debug;
mod device;
pub mod driver;
mod dtype;
mod entries;
mod error;
mod ffi;
pub mod gguf;
mod graph;
mod guard;
pub mod guide;
mod header;
mod list;
mod lock;
mod log;
pub mod meta;
mod op;
pub mod ops;
pub mod opt;
mod options;
pub mod prelude;
mod quant;
#[cfg(feature = "rpc")]
pub mod rpc;
mod rules;
pub mod run;
mod sched;
mod shape;
mod tensor;
mod version;
mod weights;

pub use alloc::GraphAllocator;
pub use backend::{Backend, Event, Priority, Threads};
pub use buffer::{Buffer, BufferType, BufferUsage, Pinned};
pub use context::Context;
pub use device::{Capabilities, Device, DeviceType, Memory, Registry};
pub use dtype::{DType, Element};
#[doc(hidden)] // for the examples of this repository
pub use error::Shown;
pub use error::{Error, IoError, Result, TensorInfo};
pub use ggml_sys as sys;
pub use graph::Graph;
/// The crate of the types `f16` and `bf16`, which are elements of tensors.
pub use half;
/// The crate of the arrays that [`arrays`] takes and returns.
#[cfg(feature = "ndarray")]
pub use ndarray;
pub use quant::Quantize;
#[doc(inline)]
pub use run::Run;
pub use sched::{Sched, SchedBuilder};
pub use shape::Shape;
pub use tensor::Tensor;
pub use tensor::pieces::Pieces;
pub use version::{commit, version};
pub use weights::{Destination, LeafIndex, LeafInfo, LeafKey, State, Transfers, Weights, WeightsBuilder, Writable};

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
