//! Compares every operation with a reference in plain Rust (64-bit floats), written from the definition, and fails
//! every check of an operand or parameter by a call. Tests named `h01_…` attempt a hazard of ggml's (`docs/safety.md`).

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

mod attention;
mod binary;
mod blocks;
mod closures;
mod conv;
mod copy;
mod custom;
mod experts;
mod flash;
mod found;
mod generate;
mod glu;
mod hazards;
mod hyper;
mod in_place;
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
mod set;
mod set_rows;
mod softmax;
mod sort;
mod support;
mod table;
#[cfg(ggml_0_28)]
mod top_k_mask;
mod trust;
mod unary;
mod view;
mod window;
