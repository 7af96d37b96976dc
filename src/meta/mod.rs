//! Tensor parallelism: several devices behind one, each with a part of the weights (`ggml_backend_meta_device`).
//!
//! A [`MetaDevice`] is a [`Device`](crate::Device) like any other: it has a type of memory for weights, and computes graphs,
//! alone or in a [`Sched`](crate::Sched). A closure says for each tensor of weights how it is divided ([`Split`]); how
//! results are divided follows. Where a product is summed over a divided dimension, the devices add up their parts.
//!
//! The feed-forward block of a transformer: each device has some of the rows of `up` and the columns of `down` that go with
//! them, so that only the last result has to be added up.
//!
//! ```
//! use ggml::GraphAllocator;
//! use ggml::meta::{MetaDevice, Split};
//! use ggml::prelude::*;
//! # fn main() -> ggml::Result<()> {
//! // Two devices, were there two.
//! let devices = [Device::cpu()?, Device::cpu()?];
//! let meta = MetaDevice::new(&devices, |t| match &*t.name {
//!     "up" => Split::Even { axis: 1 },
//!     "down" => Split::Even { axis: 0 },
//!     _ => Split::Mirrored,
//! })?;
//! let device = meta.device();
//!
//! let mut builder = WeightsBuilder::new();
//! builder.tensor("up", DType::F32, [2, 4])?.tensor("down", DType::F32, [4, 2])?;
//! let mut weights = builder.place(device.buffer_type())?;
//! weights.set("up", &[1.0_f32, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -1.0])?;
//! weights.set("down", &[1.0_f32, 0.0, -1.0, 0.0, 0.0, 1.0, 0.0, -1.0])?;
//!
//! let ctx = Context::new();
//! let x = ctx.input("x", DType::F32, [2, 1])?;
//! let hidden = ctx.relu(ctx.mul_mat(weights.get("up")?, x)?)?;
//! let sum = ctx.mul_mat(weights.get("down")?, hidden)?;
//! let y = ctx.add(sum, x)?; // a partial sum can't be read; what is made of it can
//! let graph = ctx.graph([y])?;
//!
//! let mut allocator = GraphAllocator::new(device.buffer_type());
//! let mut run = allocator.alloc(&graph)?;
//! run.set(x, &[2.0_f32, -3.0])?;
//! run.compute(&mut device.init()?)?;
//! assert_eq!(run.get::<f32>(y)?, [2.0 + 2.0, -3.0 - 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # What can be computed
//!
//! ggml ends the process where it does not know how a result would be divided, and computes nonsense in some cases that it
//! believes it knows. This crate keeps rules of its own, for those operations that were tried: whatever they don't cover is
//! an [`Error::Unsupported`](crate::Error::Unsupported) before anything is allocated, which names the operands and how they
//! are divided. Only results of operations can be looked at with `reshape` and its like, not inputs or weights; there are no
//! states, so a cache can't lie on such a device; and each device gets a part of everything that is divided.
//!
//! Weights are read and written as a whole. Where one of the devices lacks memory for a graph, that is an
//! [`Error::OutOfMemory`](crate::Error::OutOfMemory). A [`Sched`](crate::Sched) gives
//! such a device one part of each graph, without interruption. One thread at a time uses such devices, whichever they are;
//! others wait.
//!
//! # What stays for ever
//!
//! ggml frees no device: what [`MetaDevice::new`] makes, the closure included, stays as long as the process lives. Make one
//! for each configuration and keep it. (For a closure that captures nothing, the same devices give the same one again.)

pub use crate::device::meta::{MetaDevice, Split};
