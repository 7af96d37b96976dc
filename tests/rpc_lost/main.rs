//! RPC servers in their own processes, which are killed, hang, and come back. Without the relay each of these tests
//! would end the process.

#![cfg(feature = "rpc")]
#![cfg(test)]

mod again;
mod driver;
mod fake;
#[cfg(target_os = "linux")]
mod handles;
#[cfg(target_os = "linux")]
mod leaks;
mod lost;
mod nonsense;
mod proxy;
#[cfg(not(feature = "system"))]
mod quiet;
mod safe;
mod slow;

/// The process of a [`testkit::server::ServerProcess`].
#[test]
fn server_process() {
    testkit::server::server_process();
}
