//! Operations: one file per family, each a set of methods of [`Context`](crate::Context).
//!
//! A builder checks whatever C asserts or leaves to its caller about shapes, strides and parameters. What the kernels of
//! one device accept (types above all) is checked when a graph is allocated, in [`kernel`].

pub(crate) mod check;
pub(crate) mod index;
pub(crate) mod kernel;

mod binary;
mod combine;
mod conv;
mod glu;
mod loss;
mod matmul;
mod norm;
mod pad;
mod pool;
mod reduce;
mod resize;
mod rope;
mod rows;
mod softmax;
mod unary;
mod view;
mod window;

pub use conv::{Conv, Conv1d, Conv2d, Conv3d};
pub use glu::Glu;
pub use pad::Pad;
pub use pool::{Pool, Pool1d, Pool2d, Windows};
pub use resize::{Interpolate, Scale};
pub use rope::{Rope, RopeMode};
pub use softmax::SoftMax;
