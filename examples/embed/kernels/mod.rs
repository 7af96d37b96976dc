//! A layer of the encoder in kernels of our own, which ggml runs on its threads as custom operations.
//!
//! ggml's product of f32 matrices takes both as rows, and adds up along them. With the weights rearranged once
//! ([`panels`]), a few rows of what comes in stay in registers instead, and what follows on a product (a bias, GELU, the
//! residual and its norm) is done while its result is in the cache. So a layer is five operations, not thirty.
//!
//! pulp finds the widest vectors that the processor has, and compiles each kernel for each width, from safe Rust. Weights in
//! blocks of bytes take an instruction that it does not know ([`int8`]).

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

/// Whether the processor has vectors at all that these kernels are compiled for. Without, ggml's are faster.
pub(crate) fn any() -> bool {
    !matches!(pulp::Arch::new(), pulp::Arch::Scalar)
}
