//! RPC servers in their own processes, which are killed, hang, and come back. Without the relay each of these tests
//! would end the process.

#![cfg(feature = "rpc")]
#![cfg(test)]

mod again;
mod child;
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
#[path = "../rpc/raw.rs"]
#[expect(dead_code, reason = "the other tests of RPC need more of it")]
mod raw;
mod safe;
mod slow;
#[path = "../rpc/support.rs"]
mod support;
