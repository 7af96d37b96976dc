//! Hostile clients of ggml's server: changed requests, and random bytes.
//!
//! The server does not survive all of them, which is why `ServerBuilder::start` is unsafe. Here it is a separate
//! process that is replaced when it dies; the causes are counted. `cargo xtask fuzz-rpc` runs this for longer.

#![cfg(all(feature = "rpc", unix))]
#![cfg(test)]

mod client;
mod draw;
mod fuzz;
mod wire;

/// The process of a [`testkit::server::ServerProcess`].
#[test]
fn server_process() {
    testkit::server::server_process();
}
