//! Meta devices of CPUs, or of the device in the environment variable `GGML_TEST_DEVICE`.

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "small numbers")]

mod block;
mod hazards;
mod operations;
mod products;
mod refused;
#[cfg(feature = "rpc")]
mod remote;
mod sched;
mod states;
mod support;
mod weights;

/// The process of a [`testkit::server::ServerProcess`].
#[cfg(feature = "rpc")]
#[test]
fn server_process() {
    testkit::server::server_process();
}
