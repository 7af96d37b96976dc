//! The relay between ggml's RPC client, which aborts the process when its server fails, and a server, which may.
//!
//! ggml connects to a port on the loopback. What it asks goes on to the server and what the server answers comes back,
//! both checked, until the server fails: then the relay raises the [`Link`]'s flag and answers by itself from there on.
//!
//! A thread waits for connections, and each has one more, which may outlive it: ggml's sockets are inherited by child
//! processes, so the end of a connection is not always seen. ggml uses one at a time. A client has at most one answer
//! outstanding, and the server takes one request after the other, whoever of them it is from.
//!
//! ggml waits for an answer without a limit. So nothing that ggml has connected is left waiting: what can't be served, for
//! want of file handles or threads, is broken off, which ggml reports as an error on the thread that asked.

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

/// How long to wait after a connection could not be accepted, for want of file handles say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// For how long that is tried before those who wait are told.
const ACCEPT_LIMIT: Duration = Duration::from_millis(500);

/// The relay of one server.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    session: Arc<Lock<Session>>,
    door: Arc<Door>,
}

/// Where ggml connects to.
#[derive(Debug)]
struct Door {
    listener: TcpListener,
    address: SocketAddr,
    closed: AtomicBool,
    /// The other ends of what was accepted and is served.
    served: Lock<HashSet<SocketAddr>>,
}

impl Relay {
    /// Starts a relay for a server that `peer` is connected to, and that offers what the survey says.
    ///
    /// Once ggml was told of a server, the relay runs to the end of the process: ggml never forgets a device, and may
    /// connect for it at any time. Until then it can be [stopped](Self::stop).
    pub(super) fn start(link: Arc<Link>, survey: Survey, peer: Peer) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let door = Door { listener, address, closed: AtomicBool::new(false), served: Lock::default() };
        let relay = Self { session: Arc::new(Lock::new(Session::new(link, survey, peer))), door: Arc::new(door) };
        let waiting = relay.clone();
        thread::Builder::new().name("ggml-rpc-accept".to_owned()).spawn(move || waiting.wait())?;
        Ok(relay)
    }

    /// The address to give to ggml.
    pub(super) fn address(&self) -> SocketAddr {
        self.door.address
    }

    /// Gives back the thread and the port, for a server that ggml does not know.
    pub(super) fn stop(&self) {
        self.door.close();
        self.session().part();
    }

    /// Goes on with another link, over the connection in `peer`, if nobody needs this one. Returns whether it does, and only
    /// then takes the connection.
    pub(super) fn renew(&self, link: &Arc<Link>, peer: &mut Option<Peer>) -> bool {
        // Where the session is in use, a client is.
        self.session.try_lock().is_some_and(|mut session| session.renew(link, peer))
    }

    fn wait(&self) {
        let mut failing: Option<Instant> = None;
        loop {
            let accepted = self.door.listener.accept();
            if self.door.closed.load(Ordering::SeqCst) {
                return;
            }
            if let Ok((stream, other)) = accepted {
                failing = None;
                self.take(stream, other);
                continue;
            }
            let start = Instant::now();
            if start.duration_since(*failing.get_or_insert(start)) >= ACCEPT_LIMIT {
                self.door.hang_up();
            }
            // The search through all handles takes no more than a tenth of the time.
            thread::sleep(ACCEPT_AGAIN.max(start.elapsed().saturating_mul(9)));
        }
    }

    /// Serves a connection on a thread of its own. Without one, it is closed.
    fn take(&self, stream: TcpStream, other: SocketAddr) {
        let relay = self.clone();
        let serve = move || {
            // An error is the client's, which then is gone or not ggml. What it did to the session is dealt with.
            let _ended = Peer::new(stream).and_then(|mut client| relay.serve(&mut client));
            relay.door.served().remove(&other);
        };
        self.door.served().insert(other);
        if thread::Builder::new().name("ggml-rpc-relay".to_owned()).spawn(serve).is_err() {
            self.door.served().remove(&other);
        }
    }

    /// Serves one client, until it leaves between two requests.
    fn serve(&self, client: &mut Peer) -> io::Result<()> {
        match read_head(client)? {
            None => return Ok(()),
            Some((Command::Hello, len)) => read_payload(client, len)?,
            Some(_) => return Err(ErrorKind::InvalidData.into()),
        };
        if !own::claim(client.stream()) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.session().meet(client)?;
        let served = session::answer(client, &wire::hello_reply()).and_then(|()| self.requests(client));
        self.session().leave();
        self.settle();
        served
    }

    fn requests(&self, client: &mut Peer) -> io::Result<()> {
        while let Some((command, len)) = read_head(client)? {
            let done = match command {
                Command::Hello => return Err(ErrorKind::InvalidData.into()),
                Command::SetTensor => self.session().upload(client, len),
                _ => {
                    let payload = read_payload(client, len)?;
                    self.session().exchange(client, command, payload)
                }
            };
            if let Err(error) = done {
                // Half a request may have been sent, or half an answer read.
                self.session().lose(format!("ggml broke off within {}: {error}", command.name()));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Closes the connection to the server, which then takes another client, if nobody needs it.
    ///
    /// Called after each change to what that depends on. Where the session is in use, a client is, and this comes again.
    pub(super) fn settle(&self) {
        if let Some(mut session) = self.session.try_lock()
            && session.is_free()
        {
            session.part();
        }
    }

    fn session(&self) -> Held<'_, Session> {
        self.session.lock()
    }
}

impl Door {
    fn served(&self) -> Held<'_, HashSet<SocketAddr>> {
        self.served.lock()
    }

    /// Breaks off the connections of this process's that were made and can't be accepted.
    fn hang_up(&self) {
        own::hang_up(self.address, |other| self.served().contains(&other));
    }

    /// Ends the thread that waits, whose end closes the port.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the thread on Linux. Elsewhere a connection does, and there is nothing more to try where that fails.
        drop(SockRef::from(&self.listener).shutdown(Shutdown::Both));
        if cfg!(not(target_os = "linux")) {
            drop(TcpStream::connect(self.address));
        }
    }
}

/// The next request's command and length; `None` if the client left.
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
