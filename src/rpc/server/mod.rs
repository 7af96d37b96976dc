//! A server of this process's devices that need not trust its clients.
//!
//! It speaks ggml's protocol, and is written anew: nothing of ggml's server runs. A client can make its own requests
//! fail, and its own results wrong. It can't make the process read or write memory that isn't the client's, end it, or
//! learn an address of it.
//!
//! # How it works
//!
//! - **One thread for each client** (`listen`, `client`), with backends of its own (`compute`), so that clients wait for
//!   each other only where devices do.
//! - **Numbers for everything** (`memory`). Buffers and addresses are entries of the client's table. A buffer is a
//!   [`State`](crate::State) of bytes, zeroed when it is made.
//! - **Requests are read by field** (`fields`), never cast. A tensor's description becomes a layout that builders make,
//!   at a place inside a buffer of the client.
//! - **Operations are built again** (`judge`, `graph`). The checked builder of an operation is called with operands at
//!   the places that the client named. Those are views of one tensor for each buffer, so the builder sees which of them
//!   share memory. If the builder refuses, or makes another operation than the client described, the graph is refused.
//!   Then the rules of the device judge the header that is computed, as for a graph of this process.
//! - **Values that kernels trust are checked** (`compute`). A graph is split before an operation that reads indices
//!   which the graph may have written, and the indices are read and checked then. So are operands of sorts, which must
//!   hold no NaN.
//! - **Graphs are kept as judged**, with the buffers that they use. Freeing any buffer discards them all, as in ggml.
//! - **Data pass in pieces** (`data`): a request for more bytes than a tensor has is refused before they are read.

mod cache;
mod client;
mod compute;
mod data;
mod end;
mod fields;
mod graph;
mod judge;
mod limits;
mod listen;
mod memory;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

#[cfg(feature = "rpc-tls")]
use super::tls::Tls;
use super::traffic::Traffic;
use crate::backend::Backend;
use crate::callback;
use crate::debug::debug;
use crate::device::lost::{self, ConnectionError};
use crate::device::{Device, meta};
use crate::error::{Error, Result};
use cache::Cache;
use listen::{Listening, OfferedDevice, ServerState};
use memory::Budget;

pub use limits::Limits;

const CALL: &str = "rpc::Server";

/// An RPC server in this process.
///
/// It serves several clients at a time, each on a thread of its own and with memory of its own, until it is
/// [stopped](Server::stop) or dropped. What it logs names the client's address: each connection at info level, and at
/// warning level why a client was disconnected.
///
/// # Trust
///
/// Nothing that a client sends is believed: a request that ggml's own client could not have sent is refused, and its
/// connection closed. A client can't reach another one's memory, or any other of this process. Without TLS (the feature
/// `rpc-tls`, `ServerBuilder::tls`), whoever can connect may use the devices, and whoever is between the two reads and
/// changes what they send. A client that is let in can use the devices up to its [`Limits`], which takes time from
/// others.
///
/// # Examples
///
/// ```
/// use ggml::rpc::{self, Server, Stop};
///
/// let server = Server::builder().start()?;
/// let connection = rpc::connect(&server.address().to_string())?;
/// assert_eq!(connection.devices().len(), 1);
/// server.stop(Stop::Now);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_rpc_start_server")]
#[must_use = "a server stops when it is dropped"]
pub struct Server {
    shared: Arc<ServerState>,
    listening: Listening,
    listener: TcpListener,
}

/// How a server [stops](Server::stop).
///
/// ```
/// # use ggml::rpc::{Server, Stop};
/// # let server = Server::builder().start()?;
/// server.stop(Stop::AfterRequests);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Computations on the CPU are ended before their next operation, and connections closed at once.
    Now,
    /// The request of each client that is under way is finished first, for as long as its [`Limits`] allow.
    AfterRequests,
}

/// A client of a server.
///
/// ```
/// # use ggml::rpc::{self, Server};
/// let server = Server::builder().start()?;
/// let _connection = rpc::connect(&server.address().to_string())?;
/// for client in server.clients() {
///     println!("{} holds {} bytes and sent {}", client.address, client.held, client.traffic.received);
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// Where it connects from.
    pub address: SocketAddr,
    /// The bytes of buffers and graphs that it holds.
    pub held: u64,
    /// What was sent to it and received from it.
    pub traffic: Traffic,
}

impl Server {
    /// Returns a builder; by default the server offers the CPU on 127.0.0.1 at a free port.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            devices: Vec::new(),
            threads: None,
            limits: Limits::new(),
            cache: None,
            allow_plain: false,
            #[cfg(feature = "rpc-tls")]
            tls: None,
        }
    }

    /// The address the server listens on; [`connect`](super::connect) takes it as a string.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The clients that are connected now.
    pub fn clients(&self) -> Vec<ClientInfo> {
        let clients = self.shared.clients.lock();
        let info = |(address, client): &(SocketAddr, Arc<listen::ClientState>)| ClientInfo {
            address: *address,
            held: client.budget.held(),
            traffic: client.traffic.read(),
        };
        clients.values().map(info).collect()
    }

    /// The bytes of buffers and graphs that all clients hold.
    pub fn held(&self) -> u64 {
        self.shared.budget.held()
    }

    /// Stops the server: it refuses new clients, ends the connections, and waits until its threads, sockets and memory
    /// are gone. Dropping the server is [`Stop::Now`].
    ///
    /// Called by a [device in Rust](crate::driver) that the server itself computes with, it does not wait.
    pub fn stop(mut self, how: Stop) {
        self.listening.stop(&self.shared, &self.listener, how);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listening.stop(&self.shared, &self.listener, Stop::Now);
    }
}

debug!(Server, |this| address = &this.shared.address, clients = &this.shared.clients.lock().len());

/// Configures and starts a [`Server`].
///
/// ```
/// # use ggml::prelude::*;
/// use std::net::{Ipv4Addr, SocketAddr};
/// use ggml::rpc::{Limits, Server};
///
/// let server = Server::builder()
///     .address((Ipv4Addr::LOCALHOST, 0)) // any free port
///     .devices([Device::cpu()?])
///     .threads(1)
///     .limits(Limits::new().with_connections(2))
///     .start()?;
/// assert_ne!(server.address().port(), 0);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ServerBuilder {
    address: SocketAddr,
    devices: Vec<Device>,
    threads: Option<usize>,
    limits: Limits,
    cache: Option<PathBuf>,
    allow_plain: bool,
    #[cfg(feature = "rpc-tls")]
    tls: Option<Tls>,
}

impl ServerBuilder {
    /// Sets the address to listen on, IPv4 or IPv6; port 0 means any free port.
    pub fn address(mut self, address: impl Into<SocketAddr>) -> Self {
        self.address = address.into();
        self
    }

    /// Sets the devices to serve, instead of the CPU.
    pub fn devices(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        self.devices = devices.into_iter().collect();
        self
    }

    /// Sets the number of CPU threads for each client; the default is the machine's available parallelism.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets what clients may use.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets a folder in which weights that clients upload are kept, so that they need not be sent again.
    ///
    /// The files are named by a hash that is no protection against forgery: a client can store other bytes under the
    /// hash of another's weights. Use it only if all clients trust each other.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Sets whether an address may be used that neither is this machine's own nor belongs to a private network. What is
    /// sent is neither encrypted nor authenticated.
    pub fn allow_plain(mut self, allow: bool) -> Self {
        self.allow_plain = allow;
        self
    }

    /// Sets that clients must show a certificate, as the server does, and that all is encrypted. Any address may be used
    /// then.
    #[cfg(feature = "rpc-tls")]
    pub fn tls(mut self, tls: impl Into<Option<Tls>>) -> Self {
        self.tls = tls.into();
        self
    }

    /// Starts the server, which listens when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for no threads or more than ggml supports, a device of another RPC server, and an address that
    /// needs [`ServerBuilder::allow_plain`]; [`Error::Unsupported`] for a meta device; [`Error::Rpc`] if the address is
    /// in use or the cache's folder can't be read. Otherwise as [`Device::all`].
    pub fn start(mut self) -> Result<Server> {
        callback::check_reentry("rpc::ServerBuilder::start")?;
        if self.devices.is_empty() {
            self.devices.push(Device::cpu()?);
        }
        let threads = self.thread_count()?;
        if let Some(device) = self.devices.iter().find(|device| lost::is_remote(**device)) {
            return Err(Error::param(
                CALL,
                "devices",
                device.name(),
                "it is on an RPC server itself, whose loss clients could not be told; let them connect there",
            ));
        }
        for &device in &self.devices {
            // Their kernels need what ggml's allocator leaves in a header, besides the address.
            if device.registry().is_some_and(|registry| registry.name() == "OpenCL") {
                return Err(Error::unsupported(CALL, [], device.name(), "devices of ggml's OpenCL can't be served"));
            }
            meta::before_use(CALL, device, "a meta device can't be served; serve its devices one by one")?;
        }
        let asked = self.address;
        if !self.is_encrypted() && !self.allow_plain && !is_near(asked.ip()) {
            let why = "it can be reached from foreign networks, and nothing is encrypted; use `tls` (feature \
                       `rpc-tls`), name a private address, or use `allow_plain` if the network is protected otherwise";
            return Err(Error::param(CALL, "address", asked.to_string(), why));
        }
        let failed = |what: &'static str| move |e| ConnectionError::caused(what, e).of(asked);
        let cache = self.cache.as_deref().map(|folder| Cache::open(folder, self.limits.cache)).transpose();
        let cache = cache.map_err(failed("the folder of its cache can't be read"))?;
        let memory = self.limits.memory.map_or_else(|| free_memory(&self.devices), Ok)?;
        let listener = TcpListener::bind(asked).map_err(failed("can't listen there"))?;
        let address = listener.local_addr().map_err(failed("can't listen there"))?;
        let budget = Arc::new(Budget::new(memory, None));
        let devices = self.devices.into_iter().map(OfferedDevice::of).collect::<Result<_>>()?;
        #[cfg_attr(not(feature = "rpc-tls"), expect(unused_mut, reason = "set with TLS"))]
        let mut shared = ServerState::new(address, devices, threads, self.limits, budget, cache);
        #[cfg(feature = "rpc-tls")]
        {
            shared.tls = self.tls;
        }
        let shared = Arc::new(shared);
        let (listening, listener) =
            Listening::start(Arc::clone(&shared), listener).map_err(failed("its thread could not be started"))?;
        Ok(Server { shared, listening, listener })
    }

    #[cfg_attr(not(feature = "rpc-tls"), expect(clippy::unused_self, reason = "it says so with TLS"))]
    fn is_encrypted(&self) -> bool {
        #[cfg(feature = "rpc-tls")]
        let encrypted = self.tls.is_some();
        #[cfg(not(feature = "rpc-tls"))]
        let encrypted = false;
        encrypted
    }

    fn thread_count(&self) -> Result<usize> {
        const MAX: usize = Backend::MAX_THREADS;
        match self.threads {
            None => Ok(thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX)),
            Some(n) if (1..=MAX).contains(&n) => Ok(n),
            Some(n) => Err(Error::param(CALL, "threads", n.to_string(), format!("ggml supports 1 to {MAX}"))),
        }
    }
}

/// Whether an address is this machine's own, or one of a private network.
fn is_near(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Nine tenths of the smallest memory that is free on a device or, as buffers may lie there, on this machine.
fn free_memory(devices: &[Device]) -> Result<u64> {
    let mut least = available().unwrap_or(u64::MAX);
    for device in devices {
        least = least.min(device.memory()?.free as u64);
    }
    Ok(least / 10 * 9)
}

/// What Linux can give without swapping, in bytes. ggml's CPU calls all memory free.
fn available() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 =
        info.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok())?;
    kib.checked_mul(1024)
}
