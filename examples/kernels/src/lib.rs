#![doc = include_str!("../README.md")]
#![allow(clippy::indexing_slicing, reason = "arithmetic with indices is what this is")]
#![allow(clippy::inline_always, reason = "what is not inlined is not compiled for the processor's vectors")]

mod flash;
mod linear;
mod math;
mod matmul;
#[cfg(test)]
mod tests;

pub use flash::{flash_attn_ext, flash_attn_ext_own};
pub use linear::{Linear, Part, Then};
pub use matmul::{describe, mul_mat, mul_mat_id, mul_mat_own, multiplies, multiplies_experts};

/// Whether these kernels are used: the processor has vectors that they were measured with, or a variable turns them on (see
/// [`describe`]). Otherwise ggml's are.
pub fn any() -> bool {
    matmul::level() > matmul::Level::Plain
}
