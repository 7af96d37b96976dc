//! Serving this process's devices to other processes.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroUsize;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ggml_sys as sys;
use socket2::{Domain, Socket, Type};

use super::options::Options;
use super::peer;
use super::raw;
use crate::device::lost::{self, Fault};
use crate::device::{Device, meta};
use crate::error::{Error, Result};
use crate::log;

const CALL: &str = "rpc::Server";

/// The maximum number of threads of ggml's CPU backend.
const MAX_THREADS: usize = sys::GGML_MAX_N_THREADS as usize;

/// How long a server may take to start, including the initialisation of its devices.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two checks whether the server listens.
const START_PAUSE: Duration = Duration::from_millis(2);

/// The time limit for the handshake with the new server.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

/// An RPC server in this process (`ggml_backend_rpc_start_server`).
///
/// It serves one client at a time, on its own thread, and logs a few lines at info level. (An installed ggml, see the
/// feature `system`, prints them to standard output.) It can't be stopped: it runs, and keeps what it uses, until the
/// process ends, even if this handle is dropped. Only a client's request can end it: see [`Server::wait`].
///
/// # Trust
///
/// The protocol has no authentication, and ggml's server trusts its input: a faulty client can crash this process, and
/// a hostile one can take it over. That is why [`ServerBuilder::start`] is unsafe.
///
/// # Examples
///
/// ```
/// use ggml::rpc::{self, Server};
///
/// // SAFETY: all programs on this machine are trusted.
/// let server = unsafe { Server::builder().start()? };
/// let connection = rpc::connect(&server.address().to_string())?;
/// assert_eq!(connection.devices().len(), 1);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_rpc_start_server")]
#[derive(Debug)]
pub struct Server {
    address: SocketAddrV4,
    thread: JoinHandle<Result<()>>,
}

impl Server {
    /// Returns a builder; by default the server offers the CPU on 127.0.0.1 at a free port.
    pub fn builder() -> ServerBuilder {
        ServerBuilder { address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), devices: Vec::new(), threads: None }
    }

    /// The address the server listens on; [`connect`](super::connect) takes it as a string.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Waits until the server ends, and returns the reason. It only ends if a client makes ggml throw an exception,
    /// such as by announcing more bytes than a process can allocate, or if a [device in Rust](crate::driver) fails.
    /// Nothing listens on the address afterwards.
    pub fn wait(self) -> Error {
        why_it_ended(self.address, self.thread)
    }
}

/// Configures and starts a [`Server`].
///
/// ```
/// # use ggml::prelude::*;
/// use std::net::{Ipv4Addr, SocketAddrV4};
/// use std::num::NonZeroUsize;
/// use ggml::rpc::Server;
///
/// let builder = Server::builder()
///     .address(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)) // any free port
///     .devices([Device::cpu()?])
///     .threads(NonZeroUsize::MIN);
/// // SAFETY: all programs on this machine are trusted.
/// let server = unsafe { builder.start()? };
/// assert_ne!(server.address().port(), 0);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ServerBuilder {
    address: SocketAddrV4,
    devices: Vec<Device>,
    threads: Option<NonZeroUsize>,
}

impl ServerBuilder {
    /// Sets the address to listen on; port 0 means any free port. ggml's server does not support IPv6.
    pub fn address(mut self, address: SocketAddrV4) -> Self {
        self.address = address;
        self
    }

    /// Sets the devices to serve, instead of the CPU.
    pub fn devices(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        self.devices = devices.into_iter().collect();
        self
    }

    /// Sets the number of CPU threads; the default is the machine's available parallelism.
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Starts the server and waits until it listens.
    ///
    /// # Safety
    ///
    /// Every client that can connect to the address, now or later, must be trusted with this process: ggml does not
    /// check requests well enough to prevent a hostile or faulty client from reading and writing its memory. For a
    /// loopback address, which is the default, that includes every program on this machine.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for more threads than ggml supports, or a device of another RPC server; [`Error::Unsupported`]
    /// for a meta device; [`Error::Rpc`] if the address is in use or the server does not start. Otherwise as
    /// [`Device::all`].
    pub unsafe fn start(mut self) -> Result<Server> {
        if !self.address.ip().is_loopback() {
            let line =
                format!("the RPC server on {} can be reached, and taken over, from other machines", self.address);
            log::say(::log::Level::Warn, line);
        }
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
            meta::before_use(CALL, device, "a meta device can't be served; serve its devices one by one")?;
        }
        let asked = self.address;
        let failed = |what, e| Fault::caused(what, e).of(asked);
        let (address, reservation) = reserve(asked).map_err(|e| failed("can't listen there", e))?;
        let endpoint = CString::new(address.to_string()).map_err(|e| Fault::from(e.to_string()).of(asked))?;
        let thread = thread::Builder::new()
            .name("ggml-rpc-server".to_owned())
            // SAFETY: the caller of `start` promises that clients are trusted (see `# Safety`).
            .spawn(move || unsafe { raw::serve(&endpoint, threads, &self.devices) })
            .map_err(|e| failed("its thread could not be started", e))?;
        let thread = wait_until_it_listens(address, thread)?;
        drop(reservation);
        Ok(Server { address, thread })
    }

    fn thread_count(&self) -> Result<usize> {
        match self.threads.map(NonZeroUsize::get) {
            None => Ok(thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS)),
            Some(n) if n <= MAX_THREADS => Ok(n),
            Some(n) => {
                Err(Error::param(CALL, "threads", n.to_string(), format!("ggml supports {MAX_THREADS} at most")))
            }
        }
    }
}

/// Reserves a free port until the server listens on it.
///
/// ggml's server can't report which port it got, so it must be given one. On Linux a socket that is bound but does not
/// listen keeps the port from everyone except those who name it with `SO_REUSEADDR`, as the server does. Elsewhere the
/// port is only known to have been free.
fn reserve(address: SocketAddrV4) -> io::Result<(SocketAddrV4, Option<Socket>)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(address).into())?;
    let bound = socket.local_addr()?.as_socket_ipv4().unwrap_or(address);
    Ok((bound, cfg!(target_os = "linux").then_some(socket)))
}

fn why_it_ended(address: SocketAddrV4, thread: JoinHandle<Result<()>>) -> Error {
    match thread.join() {
        Ok(Err(error)) => error,
        Ok(Ok(())) => Fault::from("it ended; the reason is on the standard error output").of(address),
        Err(_) => Fault::from("its thread panicked").of(address),
    }
}

fn wait_until_it_listens(address: SocketAddrV4, thread: JoinHandle<Result<()>>) -> Result<JoinHandle<Result<()>>> {
    // A server that listens on all addresses of the machine also listens on the loopback.
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST } else { *address.ip() };
    let target = [SocketAddr::new(IpAddr::V4(ip), address.port())];
    let options = Options::new().with_connect_timeout(GREETING_LIMIT);
    let start = Instant::now();
    while start.elapsed() < START_LIMIT {
        if thread.is_finished() {
            return Err(why_it_ended(address, thread));
        }
        if peer::open(&target, &options).is_ok() {
            return Ok(thread);
        }
        thread::sleep(START_PAUSE);
    }
    Err(Fault::from("it does not listen").of(address))
}
