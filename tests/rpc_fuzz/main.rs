//! Hostile clients of the RPC server: recorded sessions with changes, changed requests, and random bytes.
//!
//! The server is a separate process, so that its end would be noticed. `cargo xtask fuzz-rpc` runs this for longer.

#![cfg(all(feature = "rpc", unix))]
#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::cast_possible_wrap, reason = "small numbers, exact results")]

mod beside;
mod cache;
mod client;
mod draw;
mod fields;
mod fuzz;
mod graphs;
mod limits;
mod log;
mod messages;
#[path = "../device/ops.rs"]
mod ops;
mod params;
mod record;
mod wire;

use ggml::Result;
use ggml::prelude::*;
use record::agree;
use testkit::bench::Bench;

/// A computation to record.
struct Case {
    #[expect(clippy::type_complexity, reason = "one type, used once")]
    build: Box<dyn for<'c> Fn(&Bench<'c>) -> Result<Tensor<'c>>>,
    /// Only for `tests/device`.
    must: bool,
}

fn case(_name: impl Into<String>, build: impl for<'c> Fn(&Bench<'c>) -> Result<Tensor<'c>> + 'static) -> Case {
    Case { build: Box::new(build), must: true }
}

impl Case {
    fn rough(self) -> Self {
        self
    }

    fn optional(mut self) -> Self {
        self.must = false;
        self
    }
}

/// The process of a [`testkit::server::ServerProcess`].
#[test]
fn server_process() {
    if !testkit::server::is_one() {
        record::sessions();
    }
    testkit::server::server_process();
}
