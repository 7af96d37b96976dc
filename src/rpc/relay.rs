//! The relay between ggml's RPC client, which aborts the process when its server fails, and a server, which may.
//!
//! ggml connects to a port on the loopback. What it asks goes on to the server and what the server answers comes back,
//! both checked, until the server fails: then the relay raises the [`Link`]'s flag and answers by itself from there on.
//!
//! One thread serves one server and one client at a time. That is all there can be: a server takes one client, ggml
//! makes one connection per address and opens the next one only after it gave up the last, and a client has at most one
//! answer outstanding.

use std::collections::HashMap;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::link::Link;
use super::peer::{self, Peer, is_timeout};
use super::wire::{self, Command, MAX_REPLY, RequestLen};

/// How long to wait after a connection could not be accepted, for want of file handles say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A graph as the client last sent it to a device.
#[derive(Debug)]
struct StoredGraph {
    payload: Vec<u8>,
    /// Whether the server has forgotten it.
    forgotten: bool,
}

#[derive(Debug)]
struct Relay {
    link: Arc<Link>,
    /// `None` before the first client, between clients if nobody holds the link, and for ever once the server is lost.
    server: Option<Peer>,
    graphs: HashMap<u32, StoredGraph>,
}

/// Starts a relay for a server that `peer` is connected to, and returns the address to give to ggml.
///
/// The thread runs to the end of the process: ggml never forgets a device, and may connect for it at any time.
pub(super) fn start(link: Arc<Link>, peer: Peer) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let relay = Relay { link, server: Some(peer), graphs: HashMap::new() };
    thread::Builder::new().name("ggml-rpc-relay".to_owned()).spawn(move || relay.run(&listener))?;
    Ok(address)
}

impl Relay {
    fn run(mut self, listener: &TcpListener) {
        loop {
            match listener.accept().and_then(|(stream, _)| Peer::new(stream)) {
                // An error is the client's: it vanished within a request, or it is not ggml.
                Ok(mut client) => {
                    if self.serve(&mut client).is_err() {
                        self.part();
                    }
                }
                Err(_) => thread::sleep(ACCEPT_AGAIN),
            }
            if !self.link.is_held() {
                self.part();
            }
        }
    }

    /// Closes the connection to the server, which then frees what the client had there and takes another client.
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

    /// Serves one client, until it leaves between two requests.
    fn serve(&mut self, client: &mut Peer) -> io::Result<()> {
        match read_head(client)? {
            None => return Ok(()),
            Some((Command::Hello, len)) => read_payload(client, len)?,
            Some(_) => return Err(ErrorKind::InvalidData.into()),
        };
        self.meet();
        answer(client, &wire::hello_reply())?;
        while let Some((command, len)) = read_head(client)? {
            match command {
                Command::Hello => return Err(ErrorKind::InvalidData.into()),
                Command::SetTensor => self.upload(client, len)?,
                _ => {
                    let payload = read_payload(client, len)?;
                    self.exchange(client, command, payload)?;
                }
            }
        }
        Ok(())
    }

    /// Makes sure, for a new client, that there is a server or that it is known to be lost.
    fn meet(&mut self) {
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

    /// Passes on a tensor's data as it comes, which may be more than fits into memory.
    fn upload(&mut self, client: &mut Peer, len: u64) -> io::Result<()> {
        let command = Command::SetTensor;
        self.look();
        self.send(command, |server| server.writer.write_all(&wire::request_head(command, len)));
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
        if let Some(len) = command.reply_len(&payload) {
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
