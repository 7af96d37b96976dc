//! Several devices that work as one.

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
    reason = "a test fails by panicking, and its numbers are small"
)]

mod block;
mod hazards;
mod operations;
mod products;
mod refused;
#[cfg(feature = "rpc")]
mod remote;
mod sched;
mod support;
mod weights;
