//! The types that most programs need: `use ggml::prelude::*;`.

pub use crate::{
    Allocated, Backend, Context, DType, Device, DeviceType, Element, Error, Graph, Sched, Shape, State, StateIndex,
    Tensor, WeightIndex, Weights, WeightsBuilder,
};
