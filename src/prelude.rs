//! The types that most programs need: `use ggml::prelude::*;`.

pub use crate::{
    Allocated, Backend, Context, DType, Device, DeviceType, Element, Error, Graph, Sched, Shape, State, Tensor,
    Weights, WeightsBuilder,
};
