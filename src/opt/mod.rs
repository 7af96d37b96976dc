//! Training with ggml's gradients and optimisers.
//!
//! A model is built like any other graph. An [`OptContext`] adds a loss, its gradients and the optimiser's steps, and
//! keeps the state across batches.
//!
//! ```
//! use ggml::opt::{AdamW, LossType, OptContext, OptParams};
//! use ggml::prelude::*;
//! # fn main() -> ggml::Result<()> {
//! // y = a x + b
//! let mut builder = WeightsBuilder::new();
//! builder.tensor("a", DType::F32, [1])?;
//! builder.tensor("b", DType::F32, [1])?;
//! let line = builder.place_state(Device::cpu()?.buffer_type())?;
//!
//! let ctx = Context::new();
//! let x = ctx.input("x", DType::F32, [1, 4])?;
//! let y = ctx.add(ctx.mul(x, line.tensor("a")?)?, line.tensor("b")?)?;
//!
//! let params = OptParams::new(LossType::MeanSquaredError).with_optimizer(AdamW::new().with_alpha(0.1));
//! let mut opt = OptContext::new([line.tensor("a")?, line.tensor("b")?], params)?;
//! let graphs = opt.graphs(&ctx, x, y)?;
//! let labels = graphs.labels().expect("what outputs are compared with");
//!
//! let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
//! let mut run = opt.alloc(&mut sched, &graphs, true)?;
//! run.set(x, &[0.0_f32, 1.0, 2.0, 3.0])?;
//! run.set(labels, &[1.0_f32, 3.0, 5.0, 7.0])?;
//! for _ in 0..500 {
//!     run.eval(None)?;
//! }
//! assert!((line.tensor("a")?.read::<f32>()?[0] - 2.0).abs() < 0.01);
//! assert!((line.tensor("b")?.read::<f32>()?[0] - 1.0).abs() < 0.01);
//! # Ok(())
//! # }
//! ```
//!
//! [`Dataset`], [`OptContext::epoch`] and [`OptContext::fit`] copy data into the inputs, batch by batch.
//!
//! # Gradients
//!
//! Gradients are ggml's own (`ggml_build_backward_expand`). ggml implements the backward pass of some operations only,
//! and of some of those for certain shapes only; [`OptContext::graphs`] names the unsupported operation in its error.
//!
//! ggml passes a gradient back through `permute` and `transpose` without making it contiguous. If the operation before
//! them needs a contiguous gradient, [`OptContext::graphs`] or, if it depends on the device, [`OptContext::alloc`] says
//! so: a `reshape` to the same shape, put before the `permute`, copies the gradient. The gradient of a `view` starts as
//! 0 times the viewed tensor, so infinities there, such as those of a mask, turn it into NaN.
//!
//! # Why not `ggml_opt_context_t`?
//!
//! That object builds the same three graphs with the same functions, but can't be used soundly. It ignores a failed
//! allocation of its graph (`ggml_opt_alloc`) and computes on NULL; it ignores the status of a computation
//! (`ggml_opt_eval`) and reports the loss of an earlier one; its graphs are of a fixed size and hidden, so nothing can
//! check whether the CPU has kernels for them. Here they are ordinary graphs on a [`Sched`](crate::Sched), with the
//! same checks. Data sets, results and loops are written in Rust.

mod backward;
mod context;
mod dataset;
mod epoch;
mod graphs;
mod loss;
mod optimizer;
mod result;
mod rng;
mod run;

pub use context::{BuildType, Moment, OptContext, OptParams};
pub use dataset::Dataset;
pub use epoch::{Epoch, Fit, Progress};
pub use graphs::OptGraphs;
pub use loss::LossType;
pub use optimizer::{AdamW, Optimizer, Sgd};
pub use result::{Estimate, OptResult};
pub use rng::Rng;
pub use run::OptRun;
