//! Devices of other processes and machines, over ggml's RPC protocol.
//!
//! [`connect`] to a server and use its [`devices`](Connection::devices) like local ones; offer this process's devices
//! to others with a [`Server`]. Both ends must be built from the same version of ggml.
//!
//! # When a server is lost
//!
//! ggml itself aborts the process when a server is lost. This crate prevents that: ggml talks to servers through a
//! relay in this process, which always answers (see [`Options::with_relay`]). Calls on the devices of a lost server return
//! [`Error::RpcLost`](crate::Error::RpcLost); the tensors stored there are lost. A server does not answer uploads and
//! computations, so the loss shows in the next call that reads, allocates or queries something. If the process has no
//! file handle left for ggml or the relay, the call returns an error and may be repeated later.
//!
//! # Trust
//!
//! The protocol has neither authentication nor encryption; with the feature `rpc-tls`, `rpc::Tls` adds both. A
//! [`Server`] believes nothing that its clients send. A server can return arbitrary results and make calls fail, but can't harm the memory of this process: indices computed
//! on a server may only be used there, and are refused elsewhere. The relay listens on the loopback address; on Unix it
//! serves no other process.

mod connection;
mod graphs;
mod half;
mod link;
mod options;
mod own;
mod peer;
mod raw;
mod relay;
mod server;
mod session;
mod survey;
#[cfg(test)]
mod tests;
mod timed;
#[cfg(feature = "rpc-tls")]
mod tls;
mod traffic;
mod wire;

pub use connection::{Connection, connect, connect_with};
pub use options::Options;
pub use server::{ClientInfo, Limits, Server, ServerBuilder, Stop};
#[cfg(feature = "rpc-tls")]
pub use tls::Tls;
pub use traffic::Traffic;
pub use wire::VERSION;
