//! What reading a file takes of memory is bounded by the file's length, whatever the file says.
//!
//! A test of its own: it counts what is allocated.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_assert_message,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

mod bounds;
mod counting;
mod files;
mod fuzz;
