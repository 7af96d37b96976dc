//! Rust kernels of an encoder layer, which ggml runs on its threads as custom operations.
//!
//! ggml's f32 matrix product takes rows of both operands and sums along them. Here the weights are reordered once
//! ([`panels`]), so that sums of a few rows stay in registers; the operations that follow a product (bias, GELU,
//! residual and norm) run while its result is in the cache. So a layer takes five operations instead of thirty.
//!
//! pulp detects the widest vectors of the processor, and compiles each kernel for each width, in safe Rust. Weights in
//! byte blocks use an instruction that pulp does not support ([`int8`]).

#![allow(clippy::indexing_slicing, reason = "arithmetic with indices is what this is")]
#![allow(clippy::inline_always, reason = "what is not inlined is not compiled for the processor's vectors")]

mod attention;
mod int8;
mod layer;
mod linear;
mod math;
mod panels;
#[cfg(test)]
mod tests;

pub(crate) use layer::Layer;

/// Whether the processor has a vector width that these kernels support. Otherwise ggml's kernels are faster.
pub(crate) fn any() -> bool {
    !matches!(pulp::Arch::new(), pulp::Arch::Scalar)
}
