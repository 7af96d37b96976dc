//! The relay between ggml's RPC client, which aborts the process on failure, and a server, which may fail.
//!
//! ggml connects to a port on the loopback. The relay forwards requests and answers, and checks both, until the server
//! fails: then it sets the [`Link`]'s lost flag and answers by itself.
//!
//! One thread accepts connections, and each connection has its own thread. Several connections may exist: child
//! processes inherit ggml's sockets, so the end of a connection is not always visible; ggml uses one at a time. A
//! client waits for at most one answer, and they share one connection to the server, which takes one request at a time.
//!
//! ggml waits for answers without a time-out. So no connection of ggml's is left waiting: if it can't be served, for
//! lack of file handles or threads, the relay breaks it off, and ggml reports an error on the calling thread.

use std::collections::HashSet;
use std::io::{self, BufRead, ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::link::Link;
use super::own;
use super::peer::Peer;
use super::session::{self, Session};
use super::survey::Survey;
use super::wire::{self, Command, RequestLen};
use crate::lock::{Held, Lock};

/// The pause after a connection could not be accepted, for example for lack of file handles.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How long accepting is retried before waiting connections are broken off.
const ACCEPT_LIMIT: Duration = Duration::from_millis(500);

/// The relay of one server.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    session: Arc<Lock<Session>>,
    port: Arc<Port>,
}

/// The listening socket that ggml connects to.
#[derive(Debug)]
struct Port {
    listener: TcpListener,
    address: SocketAddr,
    closed: AtomicBool,
    /// The remote addresses of the connections that are served.
    served: Lock<HashSet<SocketAddr>>,
}

impl Relay {
    /// Starts a relay for the server that `peer` is connected to; `survey` is what the server offers.
    ///
    /// Once ggml knows the server, the relay runs until the process ends: ggml never forgets a device, and may connect
    /// at any time. Before that it can be [stopped](Self::stop).
    pub(super) fn start(link: Arc<Link>, survey: Survey, peer: Peer) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let port = Port { listener, address, closed: AtomicBool::new(false), served: Lock::default() };
        let relay = Self { session: Arc::new(Lock::new(Session::new(link, survey, peer))), port: Arc::new(port) };
        let waiting = relay.clone();
        thread::Builder::new().name("ggml-rpc-accept".to_owned()).spawn(move || waiting.wait())?;
        Ok(relay)
    }

    /// The address to give to ggml.
    pub(super) fn address(&self) -> SocketAddr {
        self.port.address
    }

    /// Releases the thread and the port. Only for a server that ggml does not know.
    pub(super) fn stop(&self) {
        self.port.close();
        self.session().disconnect();
    }

    /// Switches to another link, over the connection in `peer`, if nothing uses the old one. Returns whether it did;
    /// takes the connection only then.
    pub(super) fn renew(&self, link: &Arc<Link>, peer: &mut Option<Peer>) -> bool {
        // A locked session is in use by a client.
        self.session.try_lock().is_some_and(|mut session| session.renew(link, peer))
    }

    fn wait(&self) {
        let mut failing: Option<Instant> = None;
        loop {
            let accepted = self.port.listener.accept();
            if self.port.closed.load(Ordering::SeqCst) {
                return;
            }
            if let Ok((stream, other)) = accepted {
                failing = None;
                self.take(stream, other);
                continue;
            }
            let start = Instant::now();
            if start.duration_since(*failing.get_or_insert(start)) >= ACCEPT_LIMIT {
                self.port.hang_up();
            }
            // The search through all handles takes at most a tenth of the time.
            thread::sleep(ACCEPT_AGAIN.max(start.elapsed().saturating_mul(9)));
        }
    }

    /// Serves a connection on a new thread. If the thread can't be started, the connection is closed.
    fn take(&self, stream: TcpStream, other: SocketAddr) {
        let relay = self.clone();
        let serve = move || {
            // An error means that the client is gone or is not ggml. The session was updated already.
            let _ended = Peer::new(stream, None).and_then(|mut client| relay.serve(&mut client));
            relay.port.served().remove(&other);
        };
        self.port.served().insert(other);
        if thread::Builder::new().name("ggml-rpc-relay".to_owned()).spawn(serve).is_err() {
            self.port.served().remove(&other);
        }
    }

    /// Serves one client until it disconnects between two requests.
    fn serve(&self, client: &mut Peer) -> io::Result<()> {
        match read_head(client)? {
            None => return Ok(()),
            Some((Command::Hello, len)) => read_payload(client, len)?,
            Some(_) => return Err(ErrorKind::InvalidData.into()),
        };
        if !own::claim(client.stream()) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.session().add_client(client)?;
        let served = session::answer(client, &wire::hello_reply()).and_then(|()| self.requests(client));
        self.session().remove_client();
        self.disconnect_if_free();
        served
    }

    fn requests(&self, client: &mut Peer) -> io::Result<()> {
        while let Some((command, len)) = read_head(client)? {
            let done = match command {
                // A collective is never begun, see `Survey::answer`.
                Command::Hello | Command::CommAllreduce | Command::CommFree => {
                    return Err(ErrorKind::InvalidData.into());
                }
                Command::SetTensor | Command::SetTensor2d => self.session().upload(client, command, len),
                _ => {
                    let payload = read_payload(client, len)?;
                    self.session().exchange(client, command, payload)
                }
            };
            if let Err(error) = done {
                // The request may have been sent in part, or the answer read in part.
                self.session().mark_lost(format!("ggml broke off within {}: {error}", command.name()).into());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Disconnects from the server if nothing uses it, so that it accepts another client.
    ///
    /// Called after every change that can matter. If the session is locked, a client uses it and will call this again.
    pub(super) fn disconnect_if_free(&self) {
        if let Some(mut session) = self.session.try_lock()
            && session.is_free()
        {
            session.disconnect();
        }
    }

    fn session(&self) -> Held<'_, Session> {
        self.session.lock()
    }
}

impl Port {
    fn served(&self) -> Held<'_, HashSet<SocketAddr>> {
        self.served.lock()
    }

    /// Breaks off connections of this process that wait to be accepted.
    fn hang_up(&self) {
        own::hang_up(self.address, |other| self.served().contains(&other));
    }

    /// Ends the accepting thread, which closes the port.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the thread on Linux. Elsewhere a connection wakes it; if that fails, nothing else can be tried.
        drop(SockRef::from(&self.listener).shutdown(Shutdown::Both));
        if cfg!(not(target_os = "linux")) {
            drop(TcpStream::connect(self.address));
        }
    }
}

/// Reads the next request's command and length; `None` if the client disconnected.
fn read_head(client: &mut Peer) -> io::Result<Option<(Command, u64)>> {
    let byte = match client.read_some() {
        Ok(bytes) => bytes.first().copied().unwrap_or(u8::MAX),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    };
    client.reader.consume(1);
    let command = Command::from_byte(byte).ok_or(ErrorKind::InvalidData)?;
    let len = client.read_len()?;
    match command.request_len() {
        RequestLen::Exactly(expected) if expected != len => Err(ErrorKind::InvalidData.into()),
        _ => Ok(Some((command, len))),
    }
}

fn read_payload(client: &mut Peer, len: u64) -> io::Result<Vec<u8>> {
    let mut payload = Vec::new();
    (&mut client.reader).take(len).read_to_end(&mut payload)?;
    if payload.len() as u64 == len { Ok(payload) } else { Err(ErrorKind::UnexpectedEof.into()) }
}
