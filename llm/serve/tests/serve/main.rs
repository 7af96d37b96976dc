//! The server, over HTTP.

#![cfg(test)]

mod answers;
mod hostile;
mod limits;
#[cfg(feature = "rpc")]
mod lost;
mod many;
#[cfg(feature = "constrain")]
mod schemas;
mod server;
#[cfg(feature = "constrain")]
mod soak;

/// The child process: see `testkit::server`.
#[cfg(feature = "rpc")]
#[test]
fn server_process() {
    testkit::server::server_process();
}
