//! The relay between ggml's RPC client, which aborts the process when its server fails, and a server, which may.
//!
//! ggml connects to a port on the loopback. What it asks goes on to the server and what the server answers comes back,
//! both checked, until the server fails: then the relay raises the [`Link`]'s flag and answers by itself from there on.
//!
//! A thread waits for connections, and each has one more, which may outlive it: ggml's sockets are inherited by child
//! processes, so the end of a connection is not always seen. ggml uses one at a time. A client has at most one answer
//! outstanding, and the server takes one request after the other, whoever of them it is from.

use std::collections::HashMap;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::link::Link;
use super::own;
use super::peer::{self, Peer, is_timeout};
use super::wire::{self, Command, MAX_REPLY, RequestLen};

/// How long to wait after a connection could not be accepted, for want of file handles say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The relay of one server.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    link: Arc<Link>,
    session: Arc<Mutex<Session>>,
}

/// A graph as the client last sent it to a device.
#[derive(Debug)]
struct StoredGraph {
    payload: Vec<u8>,
    /// Whether the server has forgotten it.
    forgotten: bool,
}

/// The state of affairs with the server.
#[derive(Debug)]
struct Session {
    link: Arc<Link>,
    /// `None` before the first client, between clients if nobody holds the link, and for ever once the server is lost.
    server: Option<Peer>,
    graphs: HashMap<u32, StoredGraph>,
    /// How many clients are connected.
    clients: usize,
}

impl Relay {
    /// Starts a relay for a server that `peer` is connected to. Also returns the address to give to ggml.
    ///
    /// The relay runs to the end of the process: ggml never forgets a device, and may connect for it at any time.
    pub(super) fn start(link: Arc<Link>, peer: Peer) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let session = Session { link: Arc::clone(&link), server: Some(peer), graphs: HashMap::new(), clients: 0 };
        let relay = Self { link, session: Arc::new(Mutex::new(session)) };
        let waiting = relay.clone();
        thread::Builder::new().name("ggml-rpc-accept".to_owned()).spawn(move || waiting.wait(&listener))?;
        Ok((relay, address))
    }

    fn wait(&self, listener: &TcpListener) {
        loop {
            let served = listener.accept().and_then(|(stream, _)| self.take(stream));
            if served.is_err() {
                thread::sleep(ACCEPT_AGAIN);
            }
        }
    }

    /// Serves a connection on a thread of its own.
    fn take(&self, stream: TcpStream) -> io::Result<()> {
        let relay = self.clone();
        let serve = move || {
            // An error is the client's, which then is gone or not ggml. What it did to the session is dealt with.
            let _ended = Peer::new(stream).and_then(|mut client| relay.serve(&mut client));
        };
        thread::Builder::new().name("ggml-rpc-relay".to_owned()).spawn(serve).map(drop)
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
        self.session().meet();
        let served = answer(client, &wire::hello_reply()).and_then(|()| self.requests(client));
        self.session().clients -= 1;
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
        if !self.link.is_held()
            && let Ok(mut session) = self.session.try_lock()
            && session.clients == 0
        {
            session.part();
        }
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Closes the connection to the server, which then frees what was there for us.
    fn part(&mut self) {
        self.server = None;
        self.graphs.clear();
    }

    fn lose(&mut self, reason: String) {
        self.link.lose(reason);
        self.part();
    }

    /// Loses the server to an error that happened during `command`.
    fn fail(&mut self, command: Command, error: &io::Error) {
        let command = command.name();
        let limit = self.link.options().answer_limit();
        self.lose(match error.kind() {
            ErrorKind::UnexpectedEof => format!("it closed the connection during {command}"),
            _ if is_timeout(error) => format!("it was silent for {limit:?} during {command}"),
            _ => format!("the connection broke during {command}: {error}"),
        });
    }

    /// Counts a new client, and makes sure that there is a server or that it is known to be lost.
    fn meet(&mut self) {
        self.clients += 1;
        if self.server.is_none() && self.link.lost().is_none() {
            match peer::open(&[self.link.address()], self.link.options()) {
                Ok((peer, _)) => self.server = Some(peer),
                Err(reason) => self.lose(reason),
            }
        }
    }

    /// Loses the server if it is in no state to take a request.
    fn look(&mut self) {
        if let Some(fault) = self.server.as_ref().and_then(Peer::fault_while_idle) {
            self.lose(fault);
        }
    }

    /// Does `step` to the server, if there is one, and loses it if that fails.
    fn send(&mut self, command: Command, step: impl FnOnce(&mut Peer) -> io::Result<()>) {
        if let Some(server) = self.server.as_mut()
            && let Err(error) = step(server)
        {
            self.fail(command, &error);
        }
    }

    /// Counts a request that was sent.
    fn count(&self, sent: u64, received: u64) {
        if self.server.is_some() {
            self.link.traffic.add(sent, received);
        }
    }

    /// Passes on a tensor's data as it comes, which may be more than fits into memory.
    fn upload(&mut self, client: &mut Peer, len: u64) -> io::Result<()> {
        let command = Command::SetTensor;
        self.look();
        self.send(command, |server| server.writer.write_all(&wire::request_head(command, len)));
        self.count(wire::REQUEST_HEAD as u64 + len, 0);
        let mut left = len;
        while left > 0 {
            let chunk = up_to(client.read_some()?, left);
            let n = chunk.len();
            self.send(command, |server| server.writer.write_all(chunk));
            client.reader.consume(n);
            left = left.saturating_sub(n as u64);
        }
        self.send(command, |server| server.writer.flush());
        Ok(())
    }

    /// Passes on a request, and its answer if it has one.
    fn exchange(&mut self, client: &mut Peer, command: Command, payload: Vec<u8>) -> io::Result<()> {
        let (command, payload) = self.recall(command, payload);
        self.look();
        self.send(command, |server| {
            server.writer.write_all(&wire::request_head(command, payload.len() as u64))?;
            server.writer.write_all(&payload)?;
            server.writer.flush()
        });
        let reply = command.reply_len(&payload);
        // Before the answer is passed on: whoever has it shall find it counted.
        self.count((wire::REQUEST_HEAD + payload.len()) as u64, reply.map_or(0, |len| wire::REPLY_HEAD as u64 + len));
        if let Some(len) = reply {
            client.writer.write_all(&len.to_le_bytes())?;
            let passed = self.pass_reply(client, command, &payload, len)?;
            fill_reply(client, command, passed, len)?;
            client.writer.flush()?;
        }
        self.remember(command, payload);
        Ok(())
    }

    /// Sends a graph anew where the server was told to repeat one that it has forgotten.
    ///
    /// A server forgets every graph when any buffer is freed, but ggml's client does not know that, asks for a repetition
    /// and would lose the connection. The graph is the one it sent last, unchanged, or the client had sent it again.
    fn recall(&mut self, command: Command, payload: Vec<u8>) -> (Command, Vec<u8>) {
        if command == Command::GraphRecompute {
            let device = wire::device(&payload);
            if self.graphs.get(&device).is_some_and(|graph| graph.forgotten)
                && let Some(graph) = self.graphs.remove(&device)
            {
                return (Command::GraphCompute, graph.payload);
            }
        }
        (command, payload)
    }

    fn remember(&mut self, command: Command, payload: Vec<u8>) {
        match command {
            Command::GraphCompute if self.server.is_some() => {
                self.graphs.insert(wire::device(&payload), StoredGraph { payload, forgotten: false });
            }
            Command::FreeBuffer => self.graphs.values_mut().for_each(|graph| graph.forgotten = true),
            _ => {}
        }
    }

    /// Passes on the server's answer, `len` bytes after its length, and returns how many of them came.
    fn pass_reply(&mut self, client: &mut Peer, command: Command, request: &[u8], len: u64) -> io::Result<u64> {
        let Some(server) = self.server.as_mut() else { return Ok(0) };
        match server.read_len() {
            Ok(got) if got == len => {}
            Ok(got) => {
                self.lose(format!("it answered {} with {got} bytes instead of {len}", command.name()));
                return Ok(0);
            }
            Err(error) => {
                self.fail(command, &error);
                return Ok(0);
            }
        }
        if command == Command::GetTensor {
            return self.pass_data(client, len);
        }
        let mut buffer = [0; MAX_REPLY];
        let reply = usize::try_from(len).ok().and_then(|len| buffer.get_mut(..len)).unwrap_or_default();
        if let Err(error) = server.reader.read_exact(reply) {
            self.fail(command, &error);
            return Ok(0);
        }
        if let Some(objection) = command.objection(request, reply) {
            self.lose(objection);
            return Ok(0);
        }
        client.writer.write_all(reply)?;
        Ok(len)
    }

    fn pass_data(&mut self, client: &mut Peer, len: u64) -> io::Result<u64> {
        let mut passed = 0;
        while passed < len {
            let Some(server) = self.server.as_mut() else { break };
            match server.read_some() {
                Ok(chunk) => {
                    let chunk = up_to(chunk, len.saturating_sub(passed));
                    client.writer.write_all(chunk)?;
                    let n = chunk.len();
                    server.reader.consume(n);
                    passed = passed.saturating_add(n as u64);
                }
                Err(error) => self.fail(Command::GetTensor, &error),
            }
        }
        Ok(passed)
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

fn answer(client: &mut Peer, reply: &[u8]) -> io::Result<()> {
    client.writer.write_all(&(reply.len() as u64).to_le_bytes())?;
    client.writer.write_all(reply)?;
    client.writer.flush()
}

/// Completes an answer of `len` bytes of which `passed` are the server's.
fn fill_reply(client: &mut Peer, command: Command, passed: u64, len: u64) -> io::Result<()> {
    let missing = len.saturating_sub(passed);
    let stand_in = command.stand_in();
    // Only a GET_TENSOR is ever passed on in part, and its stand-in is all zeros.
    io::copy(&mut stand_in.as_slice().chain(io::repeat(0)).take(missing), &mut client.writer)?;
    Ok(())
}

fn up_to(bytes: &[u8], len: u64) -> &[u8] {
    usize::try_from(len).ok().and_then(|len| bytes.get(..len)).unwrap_or(bytes)
}
