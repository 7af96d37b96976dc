//! A sentence encoder of the BERT family: how such a model is written on `ggml`.
//!
//! [`model`] has its file, its weights and its batches; [`encoder`] has the computation in ggml's operations, [`layer`]
//! the same layer in [`kernels`] of our own.

pub mod config;
pub mod encoder;
pub mod layer;
pub mod model;
