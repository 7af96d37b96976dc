//! Safe bindings to [ggml](https://github.com/ggml-org/ggml), the tensor library under llama.cpp and whisper.cpp.
//!
//! A computation is built in a [`Context`], collected in a [`Graph`], and allocated by a [`Sched`] (several devices) or
//! a [`GraphAllocator`] (one device). The allocated graph sets inputs, computes, and reads results. Constant data lies
//! in [`Weights`], data that computations change in [`State`].
//!
//! Names are ggml's without the prefix. To find a C function, search the docs for its full name.

#![cfg_attr(not(test), deny(clippy::disallowed_types))]
// The features that items need, in the docs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod alloc;
mod backend;
mod buffer;
mod callback;
mod context;
pub mod cpu;
mod debug;
mod device;
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
mod ops;
pub mod opt;
mod options;
pub mod prelude;
mod quant;
#[cfg(feature = "rpc")]
pub mod rpc;
mod rules;
mod run;
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
#[cfg(ggml_0_28)]
pub use ops::TopKMask;
pub use ops::{
    Conv, Conv1d, Conv2d, Conv3d, Custom, FlashAttn, GatedDeltaNet, GatedLinearAttn, Glu, Interpolate, MulMat,
    Operands, Pad, Part, Pool, Pool1d, Pool2d, Prec, Rope, RopeMode, Rows, RowsMut, RwkvWkv6, RwkvWkv7, Scale, SoftMax,
    SortOrder, SsmScan, TriType, UnaryOp, Windows,
};
pub use run::{Compare, Compared, Comparison, GraphPlan, Mismatch, Observed, Profile, Run, Split, SplitInput, Timing};
pub use sched::{Sched, SchedBuilder};
pub use shape::Shape;
pub use tensor::Tensor;
pub use tensor::pieces::Pieces;
pub use version::{commit, version};
pub use weights::{State, StateIndex, Transfers, WeightIndex, Weights, WeightsBuilder, Writable};

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
