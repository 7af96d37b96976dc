//! The threads of a server: one accepts connections, and each connection has one.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use log::Level;
use socket2::SockRef;

use super::Stop;
use super::cache::Cache;
use super::client::ClientSession;
use super::compute::Deadline;
use super::end::End;
use super::limits::Limits;
use super::memory::Budget;
use crate::device::Device;
use crate::error::Result;
use crate::lock::Lock;
use crate::log::say;
use crate::rpc::half::Security;
use crate::rpc::peer::{self, Peer};
#[cfg(feature = "rpc-tls")]
use crate::rpc::tls::Tls;
use crate::rpc::traffic::Counter;

/// The pause after a connection could not be accepted, for example for lack of file handles.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether this thread is one of a server's.
    static IS_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// A device that a server offers.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfferedDevice {
    pub(super) device: Device,
    /// Asked once, because a device that is lost later does not answer, and clients ask before they use any.
    pub(super) alignment: usize,
    pub(super) max_size: usize,
}

impl OfferedDevice {
    pub(super) fn of(device: Device) -> Result<Self> {
        let buft = device.buffer_type();
        Ok(Self { device, alignment: buft.alignment()?, max_size: buft.max_size()? })
    }
}

/// What the threads of a server share.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) address: SocketAddr,
    pub(super) devices: Vec<OfferedDevice>,
    pub(super) threads: usize,
    pub(super) limits: Limits,
    pub(super) budget: Arc<Budget>,
    pub(super) cache: Option<Cache>,
    #[cfg(feature = "rpc-tls")]
    pub(super) tls: Option<Tls>,
    stopping: AtomicBool,
    /// By a number: an address comes again as soon as its connection is reset, while the old client still computes.
    pub(super) clients: Lock<HashMap<u64, (SocketAddr, Arc<ClientState>)>>,
    numbers: AtomicU64,
}

/// What is known of a client outside of its thread.
#[derive(Debug)]
pub(super) struct ClientState {
    stream: TcpStream,
    /// Whether no request of it is under way.
    pub(super) waits: AtomicBool,
    pub(super) deadline: Arc<Deadline>,
    pub(super) budget: Arc<Budget>,
    pub(super) traffic: Counter,
}

impl ServerState {
    pub(super) fn new(
        address: SocketAddr,
        devices: Vec<OfferedDevice>,
        threads: usize,
        limits: Limits,
        budget: Arc<Budget>,
        cache: Option<Cache>,
    ) -> Self {
        let (stopping, clients) = (AtomicBool::new(false), Lock::default());
        let numbers = AtomicU64::new(0);
        Self {
            address,
            devices,
            threads,
            limits,
            budget,
            cache,
            #[cfg(feature = "rpc-tls")]
            tls: None,
            stopping,
            clients,
            numbers,
        }
    }

    /// What a connection begins with, if it is to be encrypted.
    #[cfg_attr(not(feature = "rpc-tls"), expect(clippy::unused_self, reason = "TLS is its"))]
    fn security(&self) -> std::io::Result<Security> {
        #[cfg(feature = "rpc-tls")]
        let security = self.tls.as_ref().map(Tls::accept).transpose();
        #[cfg(not(feature = "rpc-tls"))]
        let security = Ok(None);
        security
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Adds a client, unless the server stops or has as many as it may.
    fn add(&self, peer: SocketAddr, stream: &TcpStream) -> std::result::Result<(u64, Arc<ClientState>), String> {
        let mut clients = self.clients.lock();
        if self.is_stopping() {
            return Err("the server stops".to_owned());
        }
        if clients.len() >= self.limits.connections {
            return Err(format!("{} clients are connected already", clients.len()));
        }
        let stream = stream.try_clone().map_err(|e| e.to_string())?;
        let limit = self.limits.client_memory.unwrap_or(u64::MAX);
        let budget = Arc::new(Budget::new(limit, Some(Arc::clone(&self.budget))));
        let state = ClientState {
            stream,
            waits: AtomicBool::new(true),
            deadline: Arc::default(),
            budget,
            traffic: Counter::default(),
        };
        let state = Arc::new(state);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        clients.insert(number, (peer, Arc::clone(&state)));
        Ok((number, state))
    }

    fn say(&self, level: Level, peer: SocketAddr, what: impl std::fmt::Display) {
        say(level, format!("RPC server on {}: client {peer}: {what}", self.address));
    }
}

/// The thread that accepts connections.
#[derive(Debug)]
pub(super) struct Listening(Option<JoinHandle<()>>);

impl Listening {
    pub(super) fn start(shared: Arc<ServerState>, listener: TcpListener) -> std::io::Result<(Self, TcpListener)> {
        let other = listener.try_clone()?;
        let run = move || {
            IS_SERVER.set(true);
            accept(&shared, &listener);
        };
        let thread = thread::Builder::new().name("ggml-rpc-server".to_owned()).spawn(run)?;
        Ok((Self(Some(thread)), other))
    }

    /// Ends all threads, and waits for them. A thread of a server can't wait for itself, so it doesn't.
    pub(super) fn stop(&mut self, shared: &ServerState, listener: &TcpListener, how: Stop) {
        let Some(thread) = self.0.take() else { return };
        {
            let clients = shared.clients.lock();
            shared.stopping.store(true, Ordering::SeqCst);
            for (_, client) in clients.values() {
                client.deadline.stop.store(how == Stop::Now, Ordering::SeqCst);
                // An error means that the client is gone.
                if how == Stop::Now {
                    drop(client.stream.shutdown(Shutdown::Both));
                } else if client.waits.load(Ordering::SeqCst) {
                    drop(client.stream.shutdown(Shutdown::Read));
                }
            }
        }
        // Wakes the thread on Linux. Elsewhere a connection wakes it; if that fails, nothing else can be tried.
        drop(SockRef::from(listener).shutdown(Shutdown::Both));
        if cfg!(not(target_os = "linux")) {
            let here = if shared.address.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { Ipv6Addr::LOCALHOST.into() };
            let ip = shared.address.ip();
            let ip = if ip.is_unspecified() { here } else { ip };
            drop(TcpStream::connect((ip, shared.address.port())));
        }
        if !IS_SERVER.get() && thread.join().is_err() {
            say(Level::Error, format!("RPC server on {}: its thread panicked", shared.address));
        }
    }
}

fn accept(shared: &Arc<ServerState>, listener: &TcpListener) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !shared.is_stopping() {
        let accepted = listener.accept();
        threads.extract_if(.., |thread| thread.is_finished()).for_each(|thread| drop(thread.join()));
        match accepted {
            Ok((stream, peer)) => threads.extend(take(shared, stream, peer)),
            Err(_) => thread::sleep(ACCEPT_AGAIN),
        }
    }
    for thread in threads {
        drop(thread.join());
    }
}

/// Serves a connection on a new thread. If that can't be started, the connection is closed.
fn take(shared: &Arc<ServerState>, stream: TcpStream, peer: SocketAddr) -> Option<JoinHandle<()>> {
    let (number, state) = match shared.add(peer, &stream) {
        Ok(added) => added,
        Err(_) if shared.is_stopping() => return None,
        Err(why) => {
            shared.say(Level::Warn, peer, format_args!("refused: {why}"));
            return None;
        }
    };
    let place = ClientPlace { shared: Arc::clone(shared), number };
    let run = move || {
        IS_SERVER.set(true);
        // Dropped last, when the client holds nothing any more.
        let place = place;
        let shared = &place.shared;
        shared.say(Level::Info, peer, "connected");
        let end = serve(shared, state, stream);
        let level = if matches!(end, End::Left | End::Stopped) { Level::Info } else { Level::Warn };
        shared.say(level, peer, end);
    };
    thread::Builder::new().name("ggml-rpc-client".to_owned()).spawn(run).ok()
}

fn serve(shared: &ServerState, state: Arc<ClientState>, stream: TcpStream) -> End {
    let socket = shared.security().and_then(|security| {
        peer::keep_alive(&stream)?;
        Peer::new(stream, security)
    });
    match socket {
        Ok(socket) => ClientSession::new(shared, state, socket).serve(),
        Err(error) => End::Broken(error),
    }
}

/// A client's place among the clients, which is free again when this is dropped.
struct ClientPlace {
    shared: Arc<ServerState>,
    number: u64,
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.shared.clients.lock().remove(&self.number);
    }
}
