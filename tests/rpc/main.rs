//! RPC servers in this process. No child process is started here: it would inherit ggml's sockets.
//!
//! Except in `safe`, data are moved and graphs are computed by the C functions, so that a connection failure shows
//! where ggml would abort.

#![cfg(feature = "rpc")]
#![cfg(test)]

mod connect;
mod events;
mod safe;
#[cfg(feature = "rpc-tls")]
mod tls;
mod work;

use ggml::Error;
use ggml::rpc::{Server, ServerBuilder};

/// Starts a server that only these tests know.
fn start(server: ServerBuilder) -> Result<Server, Error> {
    server.start()
}
