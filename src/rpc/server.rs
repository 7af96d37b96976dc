//! Serving this process's devices to others.

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroUsize;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ggml_sys as sys;
use socket2::{Domain, Socket, Type};

use super::options::Options;
use super::peer;
use super::raw;
use crate::device::{Device, lost, meta};
use crate::error::{Error, Result};
use crate::log;

const OP: &str = "rpc::Server";

/// The most threads that ggml's CPU backend can be told to use.
const MAX_THREADS: usize = sys::GGML_MAX_N_THREADS as usize;

/// How long a server may take to start: its devices have to be started first.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long to wait before looking again whether it listens.
const START_PAUSE: Duration = Duration::from_millis(2);

/// How long the greeting of a server that listens may take.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

/// An RPC server in this process (`ggml_backend_rpc_start_server`).
///
/// It serves one client at a time, on a thread of its own, and logs a few lines about that, as information. (An installed
/// ggml, of the feature `system`, prints them on the standard output.)
/// Nothing can stop it: it runs, with what it uses, until the process ends, whether or not this handle is dropped. What a
/// client sends may end it all the same: see [`Server::wait`].
///
/// # Whom it trusts
///
/// The protocol has no authentication, and ggml's server believes what it is sent: a client can crash this process, and
/// one that means harm can take it over. That is why [`ServerBuilder::start`] is unsafe.
///
/// # Examples
///
/// ```
/// use ggml::rpc::{self, Server};
///
/// // SAFETY: nobody else on this machine means harm.
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
    /// A server of the CPU, on 127.0.0.1 and a port that is free.
    pub fn builder() -> ServerBuilder {
        ServerBuilder { address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), devices: Vec::new(), threads: None }
    }

    /// Where it listens: what [`connect`](super::connect) wants, printed.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Waits for the server to end, which it never does by itself, and says why it did: a client made ggml throw an
    /// exception, such as by saying that more bytes come than a process can have. Then nobody listens any more.
    pub fn wait(self) -> Error {
        why_it_ended(self.address, self.thread)
    }
}

/// What a [`Server`] is to be.
#[derive(Debug, Clone)]
#[must_use]
pub struct ServerBuilder {
    address: SocketAddrV4,
    devices: Vec<Device>,
    threads: Option<NonZeroUsize>,
}

impl ServerBuilder {
    /// Listens on this address; port 0 stands for any that is free. ggml's server has no IPv6.
    pub fn address(mut self, address: SocketAddrV4) -> Self {
        self.address = address;
        self
    }

    /// Serves these devices, instead of the CPU.
    pub fn devices(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        self.devices = devices.into_iter().collect();
        self
    }

    /// Computes with as many threads on a CPU, instead of one for each that the machine offers.
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Starts the server, and waits until it listens.
    ///
    /// # Safety
    ///
    /// Everybody who can connect to the address, now or later, must be trusted with this process: what they send is
    /// not checked enough to keep a hostile or faulty client from reading and writing its memory. For a loopback address,
    /// which is the default, that is every program on this machine.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for more threads than ggml has room for, and for a device of another RPC server;
    /// [`Error::Unsupported`] for devices that work as one. [`Error::Rpc`] if the address is taken or the server does not
    /// start. Otherwise as [`Device::all`].
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
            return Err(Error::Param {
                op: OP,
                name: "devices",
                value: device.name().into(),
                expected: "it is on an RPC server itself, whose loss clients could not be told; let them connect there"
                    .into(),
            });
        }
        for &device in &self.devices {
            meta::before_use(OP, device, "several devices that work as one can't be served; serve each of them")?;
        }
        let asked = self.address;
        let failure = |reason: String| Error::Rpc { endpoint: asked.to_string().into(), reason: reason.into() };
        let (address, reservation) = reserve(asked).map_err(|e| failure(format!("can't listen there: {e}")))?;
        let endpoint = CString::new(address.to_string()).map_err(|e| failure(e.to_string()))?;
        let thread = thread::Builder::new()
            .name("ggml-rpc-server".to_owned())
            // SAFETY: that clients are trusted is our caller's promise.
            .spawn(move || unsafe { raw::serve(&endpoint, threads, &self.devices) })
            .map_err(|e| failure(format!("its thread could not be started: {e}")))?;
        let thread = wait_until_it_listens(address, thread)?;
        drop(reservation);
        Ok(Server { address, thread })
    }

    fn thread_count(&self) -> Result<usize> {
        match self.threads.map(NonZeroUsize::get) {
            None => Ok(thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS)),
            Some(n) if n <= MAX_THREADS => Ok(n),
            Some(n) => Err(Error::Param {
                op: OP,
                name: "threads",
                value: n.to_string().into(),
                expected: format!("ggml has room for {MAX_THREADS}").into(),
            }),
        }
    }
}

/// Finds a port that is free, and keeps it so until the server listens on it.
///
/// ggml's server can't say which port it got, so it has to be given one. On Linux a socket that is bound, but does not
/// listen, keeps everybody away but those who name the port and ask to reuse it, as the server does. Elsewhere the port
/// is only known to have been free.
fn reserve(address: SocketAddrV4) -> std::io::Result<(SocketAddrV4, Option<Socket>)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(address).into())?;
    let bound = socket.local_addr()?.as_socket_ipv4().unwrap_or(address);
    Ok((bound, cfg!(target_os = "linux").then_some(socket)))
}

fn why_it_ended(address: SocketAddrV4, thread: JoinHandle<Result<()>>) -> Error {
    match thread.join() {
        Ok(Err(error)) => error,
        Ok(Ok(())) => failure(address, "it ended; the reason is on the standard error output"),
        Err(_) => failure(address, "its thread panicked"),
    }
}

fn failure(address: SocketAddrV4, reason: &str) -> Error {
    Error::Rpc { endpoint: address.to_string().into(), reason: reason.to_owned().into() }
}

fn wait_until_it_listens(address: SocketAddrV4, thread: JoinHandle<Result<()>>) -> Result<JoinHandle<Result<()>>> {
    // A server that listens on every address of the machine also listens on the loopback.
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST } else { *address.ip() };
    let target = [SocketAddr::new(IpAddr::V4(ip), address.port())];
    let options = Options::new().connect_timeout(GREETING_LIMIT);
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
    Err(failure(address, "it does not listen"))
}
