//! Devices of other processes and machines, over ggml's RPC protocol.
//!
//! [`connect`] to a server and use its [`devices`](Connection::devices) like any others; offer this process's devices
//! with a [`Server`]. Both ends must be built from the same version of ggml.
//!
//! # When a server goes away
//!
//! ggml aborts the process then. Here it does not, because ggml talks to servers through a relay in this process that
//! always answers (see [`Options::relay`]). Calls on the devices of a lost server return
//! [`Error::RpcLost`](crate::Error::RpcLost), and what lay on them is gone. Uploads and computations are not answered by
//! a server, so the loss of one shows in the next call that reads, allocates or asks for something. A process that has no
//! file handle left for ggml or the relay gets an error of ggml's from that call, and may go on once there is one.
//!
//! # Trust
//!
//! The protocol has neither authentication nor encryption. See [`Server`] for what a client can do to a server. A server
//! can send any numbers as results, and make calls fail, but not harm the memory of this process: numbers that pick rows
//! or experts are used on the server that they lie on, and refused elsewhere. The relay listens on the loopback, and serves
//! no other process where the system tells processes apart (Unix).

mod connection;
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
mod traffic;
mod wire;

pub use connection::{Connection, connect, connect_with};
pub use options::Options;
pub use server::{Server, ServerBuilder};
pub use traffic::Traffic;
pub use wire::VERSION;
