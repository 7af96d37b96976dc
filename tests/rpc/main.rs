//! RPC servers in this process. No process is started here: it would inherit ggml's sockets.
//!
//! Except in `safe`, data is moved and graphs are computed with the C functions, so that a failure of the connection is
//! seen where ggml would have aborted.

#![cfg(feature = "rpc")]
#![cfg(test)]

mod connect;
mod events;
mod raw;
mod safe;
mod support;
mod work;

use ggml::Error;
use ggml::rpc::{Server, ServerBuilder};

/// Starts a server that only these tests know of.
fn start(server: ServerBuilder) -> Result<Server, Error> {
    // SAFETY: it listens on the loopback, and the machine that runs the tests is trusted.
    unsafe { server.start() }
}
