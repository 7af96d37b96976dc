//! RPC servers in processes of their own, which are killed, hang, and come back. Without the relay each of these tests
//! would end the process.

#![cfg(feature = "rpc")]
#![cfg(test)]

mod child;
mod lost;
mod nonsense;
mod proxy;
#[path = "../rpc/raw.rs"]
#[expect(dead_code, reason = "the other tests of RPC need more of it")]
mod raw;
mod safe;
#[path = "../rpc/support.rs"]
mod support;
