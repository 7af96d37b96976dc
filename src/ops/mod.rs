//! Operations: one file per family, each a set of methods of [`Context`](crate::Context).
//!
//! A builder checks what C asserts, or leaves to its caller, about shapes, strides and parameters. What the kernels of
//! a device accept (types above all) is checked by `rules/`, when a graph is allocated. In SAFETY comments,
//! `Context::build` guarantees a live C context with room for what a builder makes (H6), handles guarantee that
//! operands live for 'c, as long as the context, and a result keeps them (`src`).

pub(crate) mod check;
pub(crate) mod custom;
mod index;

mod attention;
mod binary;
mod combine;
mod conv;
mod experts;
mod generate;
mod glu;
mod hyper;
mod loss;
mod mask;
mod matmul;
mod norm;
mod numbered;
mod pad;
mod pool;
mod precision;
mod recurrent;
mod reduce;
mod resize;
mod rope;
mod rows;
mod scale;
mod set;
mod softmax;
mod sort;
#[cfg(ggml_0_28)]
mod top_k_mask;
mod unary;
mod view;
mod window;

pub use attention::FlashAttn;
pub use conv::{Conv, Conv1d, Conv2d, Conv3d};
pub use custom::{Custom, CustomOp, Operands, Rows, RowsMut};
pub use glu::Glu;
pub use mask::TriType;
pub use matmul::MulMat;
pub use pad::Pad;
pub use pool::{Pool, Pool1d, Pool2d, Windows};
pub use precision::Prec;
pub use recurrent::{GatedDeltaNet, GatedLinearAttn, RwkvWkv6, RwkvWkv7, SsmScan};
pub use resize::{Interpolate, Scale};
pub use rope::{Rope, RopeMode};
pub use set::Part;
pub use softmax::SoftMax;
pub use sort::SortOrder;
#[cfg(ggml_0_28)]
pub use top_k_mask::TopKMask;
pub use unary::UnaryOp;
