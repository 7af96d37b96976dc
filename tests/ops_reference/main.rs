//! Operations on tensors on the CPU against their definitions, worked out in plain Rust with 64-bit floats.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::missing_assert_message,
    reason = "tests fail by panicking, and their numbers are small"
)]

mod array;
mod copies;
mod functions;
mod images;
mod matrices;
mod programs;
mod rows;
mod run;
