//! The types that most programs need: `use ggml::prelude::*;`.

pub use crate::{
    Backend, Context, DType, Device, DeviceType, Element, Error, Graph, Run, Sched, Shape, State, StateIndex, Tensor,
    WeightIndex, Weights, WeightsBuilder,
};
