//! Hostile clients of ggml's server: changed requests, and random bytes.
//!
//! The server does not survive all of them, which is why `ServerBuilder::start` is unsafe. Here it is a separate
//! process that is replaced when it dies; the causes are counted. `cargo xtask fuzz-rpc` runs this for longer.

#![cfg(all(feature = "rpc", unix))]
#![cfg(test)]

#[path = "../rpc_lost/child.rs"]
#[expect(dead_code, reason = "the tests of lost servers need more of it")]
mod child;
mod client;
mod draw;
mod fuzz;
mod wire;
