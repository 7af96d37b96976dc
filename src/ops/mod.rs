//! The options of operations, their operands where these are many, and what closures in a graph get. The operations
//! themselves are methods of [`Context`](crate::Context).
//!
//! ```
//! use ggml::ops::{RopeMode, RopeOptions};
//! # use ggml::prelude::*; let ctx = Context::new();
//! let [q, positions] = [ctx.input("q", DType::F32, [64, 2, 5])?, ctx.input("positions", DType::I32, [5])?];
//! let turned = ctx.rope_ext(q, positions, RopeOptions::new(64, RopeMode::NeoX).with_freq_base(1e6))?;
//! # assert_eq!(turned.ne(), q.ne());
//! # Ok::<(), ggml::Error>(())
//! ```

// One file per family, each a set of methods of `Context`. A builder checks what C asserts, or leaves to its caller, about
// shapes, strides and parameters. What the kernels of a device accept (types above all) is checked by `rules/`, when a graph
// is allocated. `build!` calls C, and says what makes that safe.

mod build;
pub(crate) mod check;
pub(crate) mod custom;
mod index;

/// The imports that every file of builders uses.
mod prelude {
    pub(super) use crate::context::Context;
    pub(super) use crate::dtype::DType;
    pub(super) use crate::error::Result;
    pub(super) use crate::ops::build::{amend, build};
    pub(super) use crate::ops::check::{Call, entered};
    pub(super) use crate::tensor::Tensor;
}

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
mod pad;
mod pool;
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

#[cfg(ggml_0_28)]
pub use crate::op::TopKMaskOptions;
pub use crate::op::{
    Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions, FlashAttnOptions, GluOp, InterpolateMode,
    InterpolateOptions, MulMatOptions, PadOptions, Pool1dOptions, Pool2dOptions, PoolOp, PoolOptions, Prec, RopeMode,
    RopeOptions, SetOptions, SoftMaxOptions, SortOrder, TriType, UnaryOp,
};
pub use custom::{CustomOp, CustomOptions, Operands, Rows, RowsMut};
pub use recurrent::{
    GatedDeltaNetOperands, GatedLinearAttnOperands, RwkvWkv6Operands, RwkvWkv7Operands, SsmScanOperands,
};
