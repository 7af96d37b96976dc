//! The example `sched_demo`, run as its users run it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod demo;
mod files;
mod runs;
#[cfg(feature = "rpc")]
mod server;
