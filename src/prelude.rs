//! The types that most programs need: `use ggml::prelude::*;`.

#[doc(no_inline)]
pub use crate::ops;
pub use crate::{
    Backend, Context, DType, Device, DeviceType, Element, Error, Graph, LeafIndex, LeafInfo, Run, Sched, Shape, State,
    Tensor, Weights, WeightsBuilder,
};
#[doc(no_inline)] // their methods
pub use crate::{Quantize as _, gguf::Load as _};
