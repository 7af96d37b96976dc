//! What goes on between a client of the relay and the server.

use std::collections::HashMap;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::sync::Arc;

use super::link::Link;
use super::own;
use super::peer::{self, Peer};
use super::survey::Survey;
use super::timed::Limit;
use super::wire::{self, Command, MAX_REPLY};

/// A graph as the client last sent it to a device.
#[derive(Debug)]
struct StoredGraph {
    payload: Vec<u8>,
    /// Whether the server has forgotten it.
    forgotten: bool,
}

/// The state of affairs with the server.
#[derive(Debug)]
pub(super) struct Session {
    link: Arc<Link>,
    /// What is answered without asking the server, and whether or not it is lost.
    survey: Survey,
    /// `None` before the first client, between clients if nobody holds the link, and for ever once the server is lost.
    server: Option<Peer>,
    graphs: HashMap<u32, StoredGraph>,
    /// How many clients are connected.
    clients: usize,
    /// How long the server has for what it is doing, if it does something.
    limit: Limit,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, survey: Survey, peer: Peer) -> Self {
        let limit = link.options().answer_limit(0);
        Self { link, survey, server: Some(peer), graphs: HashMap::new(), clients: 0, limit }
    }

    /// Goes on with another link, over the connection in `peer`, if nobody needs this one: then there is no buffer left of
    /// it, and no backend. Returns whether it does, and only then takes the connection.
    pub(super) fn renew(&mut self, link: &Arc<Link>, peer: &mut Option<Peer>) -> bool {
        let free = self.is_free();
        if free {
            self.part();
            self.link = Arc::clone(link);
            self.server = peer.take();
        }
        free
    }

    /// Whether nobody needs the server.
    pub(super) fn is_free(&self) -> bool {
        self.clients == 0 && !self.link.is_held()
    }

    /// Closes the connection to the server, which then frees what was there for us.
    pub(super) fn part(&mut self) {
        self.server = None;
        self.graphs.clear();
    }

    pub(super) fn lose(&mut self, reason: String) {
        self.link.lose(reason);
        self.part();
    }

    /// Loses the server to an error that happened during `command`.
    fn fail(&mut self, command: Command, error: &io::Error) {
        self.lose(peer::fault(error, command, self.limit));
    }

    /// Counts a new client, and makes sure that there is a server or that it is known to be lost.
    ///
    /// Where this process is too short of file handles to connect, that says nothing of the server: the client is to go,
    /// which ggml reports, and may come again.
    pub(super) fn meet(&mut self, client: &Peer) -> io::Result<()> {
        if self.server.is_none() && self.link.lost().is_none() {
            match peer::open(&[self.link.address()], self.link.options()) {
                Ok((peer, _)) => self.server = Some(peer),
                Err(_) if own::is_short_of_handles(client.stream()) => return Err(ErrorKind::OutOfMemory.into()),
                Err(reason) => self.lose(reason),
            }
        }
        self.clients += 1;
        Ok(())
    }

    /// Counts a client less.
    pub(super) fn leave(&mut self) {
        self.clients -= 1;
    }

    /// Gives the server time for a request and its answer, of so many bytes together.
    fn begin(&mut self, bytes: u64) {
        self.limit = self.link.options().answer_limit(bytes);
        if let Some(server) = self.server.as_mut() {
            server.limit(self.limit);
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
    pub(super) fn upload(&mut self, client: &mut Peer, len: u64) -> io::Result<()> {
        let command = Command::SetTensor;
        self.look();
        self.begin(len);
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
    pub(super) fn exchange(&mut self, client: &mut Peer, command: Command, payload: Vec<u8>) -> io::Result<()> {
        if let Some(reply) = self.survey.answer(command, &payload) {
            return answer(client, &reply);
        }
        let (command, payload) = self.recall(command, payload);
        let reply = command.reply_len(&payload);
        self.look();
        self.begin((payload.len() as u64).saturating_add(reply.unwrap_or_default()));
        self.send(command, |server| {
            server.writer.write_all(&wire::request_head(command, payload.len() as u64))?;
            server.writer.write_all(&payload)?;
            server.writer.flush()
        });
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
                self.lose(peer::wrong_length(command, got, len));
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
        if let Err(error) = server.read_exact(reply) {
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

/// Sends a whole answer.
pub(super) fn answer(client: &mut Peer, reply: &[u8]) -> io::Result<()> {
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
