//! Training through ggml's own gradients and optimisers.
//!
//! A loss is written down like any other computation. [`Training`] adds its gradients and the optimiser's steps; what
//! it computes, it computes on a [`Sched`](crate::Sched), with the same checks as any graph.
//!
//! ```
//! use ggml::opt::{AdamW, Training};
//! use ggml::prelude::*;
//! # fn main() -> ggml::Result<()> {
//! // y = a x + b
//! let mut builder = WeightsBuilder::new();
//! builder.tensor("a", DType::F32, [1])?.tensor("b", DType::F32, [1])?;
//! let line = builder.place_state(Device::cpu()?.buffer_type())?;
//!
//! let ctx = Context::new();
//! let x = ctx.input("x", DType::F32, [4])?;
//! let y = ctx.input("y", DType::F32, [4])?;
//! let guess = ctx.add(ctx.mul(x, line.get("a")?)?, line.get("b")?)?;
//! let loss = ctx.sum(ctx.sqr(ctx.sub(guess, y)?)?)?;
//! let rate = AdamW { alpha: 0.1, ..AdamW::default() };
//! let mut training = Training::new(&ctx, loss, [guess], [line.get("a")?, line.get("b")?], rate)?;
//!
//! let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
//! let mut run = training.start(&mut sched)?;
//! run.set(x, &[0.0_f32, 1.0, 2.0, 3.0])?;
//! run.set(y, &[1.0_f32, 3.0, 5.0, 7.0])?;
//! for _ in 0..500 {
//!     run.step()?;
//! }
//! assert!((line.get("a")?.read::<f32>()?[0] - 2.0).abs() < 0.01);
//! assert!((line.get("b")?.read::<f32>()?[0] - 1.0).abs() < 0.01);
//! # Ok(())
//! # }
//! ```
//!
//! # Why not `ggml_opt_context_t`?
//!
//! That object builds the same three passes from the same functions, but it can't be used soundly. It ignores whether
//! memory for its graph could be had (`ggml_opt_alloc`) and goes on to compute on NULL; it ignores the status of a
//! computation (`ggml_opt_eval`) and reports the loss of an earlier one; its graphs are hidden, so that nothing can check
//! whether the CPU has kernels for them, and of a fixed size. Here they are graphs like any other. Its data sets, its
//! results and its loops over batches are a few lines of Rust, in which batches may be of any order and origin.

mod backward;
mod derivable;
mod optimizer;
mod training;

pub use optimizer::{AdamW, Optimizer, Sgd};
pub use training::{Running, Training};
