//! What ggml's server makes of hostile clients: requests that were changed, and bytes that are none.
//!
//! It can't bear all of them, which is why `ServerBuilder::start` is unsafe. The server is a process of its own here, and
//! another one after each that died; what killed it is counted. `cargo xtask fuzz-rpc` does this for longer.

#![cfg(all(feature = "rpc", unix))]
#![cfg(test)]

#[path = "../rpc_lost/child.rs"]
#[expect(dead_code, reason = "the tests of lost servers need more of it")]
mod child;
mod client;
mod draw;
mod fuzz;
mod wire;
