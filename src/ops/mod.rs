//! Operations: one file per family, each a set of methods of [`Context`](crate::Context).
//!
//! A builder checks whatever C asserts or leaves to its caller about shapes, strides and parameters. What the kernels of
//! one device accept (types above all) is checked when a graph is allocated, in [`kernel`].

pub(crate) mod check;
pub(crate) mod index;
pub(crate) mod kernel;

mod attention;
mod binary;
mod combine;
mod conv;
mod generate;
mod glu;
mod hyper;
mod loss;
mod mask;
mod matmul;
mod norm;
mod pool;
mod precision;
mod recurrent;
mod reduce;
mod rope;
mod rows;
mod scale;
mod set;
mod softmax;
mod sort;
mod unary;
mod view;

pub use attention::FlashAttn;
pub use conv::Conv2d;
pub use glu::Glu;
pub use mask::TriType;
pub use matmul::MulMat;
pub use pool::{Pool, Pool2d};
pub use precision::Prec;
pub use recurrent::{GatedDeltaNet, GatedLinearAttn, RwkvWkv6, RwkvWkv7, SsmScan};
pub use rope::{Rope, RopeMode};
pub use set::Part;
pub use softmax::SoftMax;
pub use sort::SortOrder;
pub use unary::UnaryOp;
