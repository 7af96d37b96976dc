//! Pictures of ggml's graphs, and traces of their computations.
//!
//! ```
//! use ggml::prelude::*;
//! use ggml_draw::{ToDot as _, ToSvg as _};
//! # fn main() -> ggml::Result<()> {
//! let ctx = Context::new();
//! let y = ctx.relu(ctx.input("x", DType::F32, [2])?)?;
//! let graph = ctx.graph([y])?;
//! println!("{}", graph.to_dot()?); // for `dot -Tsvg`
//! let mut sched = Sched::best()?;
//! let svg = sched.alloc(&graph)?.to_svg()?; // with devices and splits
//! assert!(svg.starts_with("<svg"));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod dot;
mod picture;
mod svg;
mod trace;

pub use dot::ToDot;
pub use picture::ToSvg;
pub use trace::ToTrace;

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
