//! The exchange between the relay's clients and the server.

use std::collections::HashMap;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::sync::Arc;

use super::graphs::Graphs;
use super::link::Link;
use super::own;
use super::peer::{self, Peer};
use super::survey::Survey;
use super::timed::TimeLimit;
use super::wire::{self, Command, MAX_REPLY};
use crate::device::lost::ConnectionError;

/// The relay's state for one server.
#[derive(Debug)]
pub(super) struct Session {
    link: Arc<Link>,
    /// What the server offers. Its queries are answered from this, whether or not the server is lost.
    survey: Survey,
    /// `None` before the first client, between clients if there is no holder, and permanently once the server is lost.
    server: Option<Peer>,
    graphs: HashMap<u32, Graphs>,
    /// The number of connected clients.
    clients: usize,
    /// The time limit of the current request, if there is one.
    limit: TimeLimit,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, survey: Survey, peer: Peer) -> Self {
        let limit = link.options().answer_limit(0);
        Self { link, survey, server: Some(peer), graphs: HashMap::new(), clients: 0, limit }
    }

    /// Switches to another link, over the connection in `peer`, if nothing uses the old one, that is if no buffer or
    /// backend of it exists. Returns whether it did; takes the connection only then.
    pub(super) fn renew(&mut self, link: &Arc<Link>, peer: &mut Option<Peer>) -> bool {
        let free = self.is_free();
        if free {
            self.disconnect();
            self.link = Arc::clone(link);
            self.server = peer.take();
        }
        free
    }

    /// Whether nothing uses the server.
    pub(super) fn is_free(&self) -> bool {
        self.clients == 0 && !self.link.is_held()
    }

    /// Disconnects from the server, which then frees this client's buffers.
    pub(super) fn disconnect(&mut self) {
        self.server = None;
        self.graphs.clear();
    }

    pub(super) fn mark_lost(&mut self, fault: ConnectionError) {
        self.link.mark_lost(fault);
        self.disconnect();
    }

    /// Marks the server lost because of an error during `command`.
    fn fail(&mut self, command: Command, error: io::Error) {
        self.mark_lost(peer::fault(error, command, self.limit));
    }

    /// Counts a new client, and connects to the server unless it is known to be lost. A server that no longer offers
    /// what ggml was told is lost.
    ///
    /// A lack of file handles in this process says nothing about the server: the client is rejected, ggml reports an
    /// error, and a later attempt may succeed.
    pub(super) fn add_client(&mut self, client: &Peer) -> io::Result<()> {
        if self.server.is_none() && self.link.lost().is_none() {
            let opened = peer::open(self.link.endpoint(), &[self.link.address()], self.link.options());
            match opened.and_then(|(mut peer, _)| self.survey.check(&mut peer, &self.link).map(|()| peer)) {
                Ok(peer) => self.server = Some(peer),
                Err(_) if own::is_short_of_handles(client.stream()) => return Err(ErrorKind::OutOfMemory.into()),
                Err(fault) => self.mark_lost(fault),
            }
        }
        self.clients += 1;
        Ok(())
    }

    /// Counts a client that disconnected.
    pub(super) fn remove_client(&mut self) {
        self.clients -= 1;
    }

    /// Starts the time limit for a request and its answer of `bytes` bytes together.
    fn begin(&mut self, bytes: u64) {
        self.limit = self.link.options().answer_limit(bytes);
        if let Some(server) = self.server.as_mut() {
            server.limit(self.limit);
        }
    }

    /// Marks the server lost if its connection can't take a request.
    fn check_idle(&mut self) {
        if let Some(fault) = self.server.as_ref().and_then(Peer::error_while_idle) {
            self.mark_lost(fault);
        }
    }

    /// Runs `step` on the server, if there is one, and marks it lost if that fails.
    fn send(&mut self, command: Command, step: impl FnOnce(&mut Peer) -> io::Result<()>) {
        if let Some(server) = self.server.as_mut()
            && let Err(error) = step(server)
        {
            self.fail(command, error);
        }
    }

    /// Adds a request that was sent to the traffic.
    fn count(&self, sent: u64, received: u64) {
        if self.server.is_some() {
            self.link.traffic.add(sent, received);
        }
    }

    /// Forwards a tensor's data chunk by chunk: all of it might not fit into memory.
    pub(super) fn upload(&mut self, client: &mut Peer, command: Command, len: u64) -> io::Result<()> {
        self.check_idle();
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

    /// Forwards a request, and its answer if it has one.
    pub(super) fn exchange(&mut self, client: &mut Peer, command: Command, payload: Vec<u8>) -> io::Result<()> {
        if let Some(reply) = self.survey.answer(command, &payload) {
            return answer(client, &reply);
        }
        let (command, payload) = self.recall(command, payload);
        let reply = command.reply_len(&payload);
        self.check_idle();
        self.begin((payload.len() as u64).saturating_add(reply.unwrap_or_default()));
        self.send(command, |server| {
            server.writer.write_all(&wire::request_head(command, payload.len() as u64))?;
            server.writer.write_all(&payload)?;
            server.writer.flush()
        });
        // Counted before the answer is forwarded, so that whoever receives the answer finds it counted.
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

    /// Sends the whole graph if the server was told to repeat a graph that it has discarded.
    ///
    /// A server discards all graphs when any buffer is freed; ggml's client does not know that, asks to repeat one and
    /// would lose the connection.
    fn recall(&mut self, command: Command, payload: Vec<u8>) -> (Command, Vec<u8>) {
        if command == Command::GraphRecompute
            && let Some(number) = wire::graph_number(&payload)
            && let Some(graphs) = self.graphs.get_mut(&wire::device(&payload))
            && let Some(graph) = graphs.recall(number)
        {
            return (Command::GraphCompute, graph);
        }
        (command, payload)
    }

    fn remember(&mut self, command: Command, payload: Vec<u8>) {
        match command {
            Command::GraphCompute if self.server.is_some() => {
                if let Some(number) = wire::graph_number(&payload) {
                    self.graphs.entry(wire::device(&payload)).or_default().add(number, payload);
                }
            }
            Command::FreeBuffer => self.graphs.values_mut().for_each(Graphs::forget),
            _ => {}
        }
    }

    /// Forwards the server's answer, `len` bytes after its length, and returns how many of them arrived.
    fn pass_reply(&mut self, client: &mut Peer, command: Command, request: &[u8], len: u64) -> io::Result<u64> {
        let Some(server) = self.server.as_mut() else { return Ok(0) };
        match server.read_len() {
            Ok(got) if got == len => {}
            Ok(got) => {
                self.mark_lost(peer::wrong_length(command, got, len));
                return Ok(0);
            }
            Err(error) => {
                self.fail(command, error);
                return Ok(0);
            }
        }
        if matches!(command, Command::GetTensor | Command::GetTensor2d) {
            return self.pass_data(client, command, len);
        }
        let mut buffer = [0; MAX_REPLY];
        let reply = usize::try_from(len).ok().and_then(|len| buffer.get_mut(..len)).unwrap_or_default();
        if let Err(error) = server.read_exact(reply) {
            self.fail(command, error);
            return Ok(0);
        }
        if let Some(refusal) = command.refusal(request, reply) {
            self.mark_lost(refusal.into());
            return Ok(0);
        }
        client.writer.write_all(reply)?;
        Ok(len)
    }

    fn pass_data(&mut self, client: &mut Peer, command: Command, len: u64) -> io::Result<u64> {
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
                Err(error) => self.fail(command, error),
            }
        }
        Ok(passed)
    }
}

/// Sends a complete answer.
pub(super) fn answer(client: &mut Peer, reply: &[u8]) -> io::Result<()> {
    client.writer.write_all(&(reply.len() as u64).to_le_bytes())?;
    client.writer.write_all(reply)?;
    client.writer.flush()
}

/// Completes an answer of `len` bytes of which `passed` came from the server.
fn fill_reply(client: &mut Peer, command: Command, passed: u64, len: u64) -> io::Result<()> {
    let missing = len.saturating_sub(passed);
    let stand_in = command.stand_in();
    // Only a tensor's data are ever forwarded in part, and its stand-in is all zeros.
    io::copy(&mut stand_in.as_slice().chain(io::repeat(0)).take(missing), &mut client.writer)?;
    Ok(())
}

fn up_to(bytes: &[u8], len: u64) -> &[u8] {
    usize::try_from(len).ok().and_then(|len| bytes.get(..len)).unwrap_or(bytes)
}
