//! Tensor parallelism: one device made of several, each with a part of the weights (`ggml_backend_meta_device`).
//!
//! A [`MetaDevice`] is a [`Device`](crate::Device) like any other: it has a buffer type for weights and states, and
//! computes graphs, alone or in a [`Sched`](crate::Sched). A closure returns the [`SplitMode`] of each of their tensors; the splits of
//! results follow from those. If a product's summed dimension is split, an all-reduce adds up the partial sums.
//!
//! The feed-forward block of a transformer: each device has some rows of `up` and the matching columns of `down`, so
//! that only the last result needs an all-reduce.
//!
//! ```
//! use ggml::GraphAllocator;
//! use ggml::meta::{MetaDevice, SplitMode};
//! use ggml::prelude::*;
//! # fn main() -> ggml::Result<()> {
//! // Stands for two different devices.
//! let devices = [Device::cpu()?, Device::cpu()?];
//! let meta = MetaDevice::new(&devices, |t| match &*t.name {
//!     "up" => SplitMode::Even { axis: 1 },
//!     "down" => SplitMode::Even { axis: 0 },
//!     _ => SplitMode::Mirrored,
//! })?;
//! let device = meta.device();
//!
//! let mut builder = WeightsBuilder::new();
//! builder.tensor("up", DType::F32, [2, 4])?;
//! builder.tensor("down", DType::F32, [4, 2])?;
//! let mut weights = builder.place(device.buffer_type())?;
//! weights.set("up", &[1.0_f32, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -1.0])?;
//! weights.set("down", &[1.0_f32, 0.0, -1.0, 0.0, 0.0, 1.0, 0.0, -1.0])?;
//!
//! let ctx = Context::new();
//! let x = ctx.input("x", DType::F32, [2, 1])?;
//! let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up")?, x)?)?;
//! let sum = ctx.mul_mat(weights.tensor("down")?, hidden)?;
//! let y = ctx.add(sum, x)?; // a partial sum can't be read; a result computed from it can
//! let graph = ctx.graph([y])?;
//!
//! let mut backend = device.init()?;
//! let mut allocator = GraphAllocator::new(device.buffer_type());
//! assert_eq!(allocator.run(&graph, &mut backend, (x, &[2.0_f32, -3.0]))?.get::<f32>(y)?, [2.0 + 2.0, -3.0 - 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # What can be computed
//!
//! ggml aborts the process if it can't tell how a result is split, and computes wrong results in some cases where it
//! believes it can. This crate has its own rules, for the operations that were tested: anything else is an
//! [`Error::Unsupported`](crate::Error::Unsupported) before anything is allocated, which names the operands and their
//! splits. `reshape` and other views are supported of states and of operations' results, not of inputs or weights. Each
//! device gets a part of every split tensor.
//!
//! # States
//!
//! A [`State`](crate::State) is split by the same closure, so that each device has the keys and values of its heads: rows
//! of a KV cache, `[head size × heads, cells]`, along axis 0. `set_rows` is the only operation that writes to one. A view of a
//! split state is contiguous and begins at its first element; `permute` may follow. ggml keeps the views of a state for
//! one allocated graph: the next allocation makes an earlier [`Run`](crate::Run) an error, and its graph must be allocated
//! again. With ggml 0.26, states can't be on a meta device of CPUs.
//!
//! # Limits
//!
//! Weights and states are read and written as a whole. If one of the devices lacks memory, that is an
//! [`Error::OutOfMemory`](crate::Error::OutOfMemory), and what the others gave is freed. A [`Sched`](crate::Sched) assigns a meta device one contiguous
//! part of each graph. Only one thread at a time uses meta devices, even different ones; others wait.
//!
//! # Lifetime
//!
//! ggml never frees a device: what [`MetaDevice::new`] creates, including the closure, lives until the process ends.
//! Make one per configuration and keep it. (With a closure that captures nothing, equal calls return the same device.)

pub use crate::device::meta::{MetaDevice, SplitMode};
