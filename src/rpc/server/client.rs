//! One client: its requests, in order, and what it holds.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::compute::Queue;
use super::end::{End, Outcome, need};
use super::fields::Fields;
use super::graph::{JudgedGraph, SentGraph};
use super::listen::{ClientState, OfferedDevice, ServerState};
use super::memory::{Buffers, HeldBytes};
use crate::device::Device;
use crate::rpc::peer::Peer;
use crate::rpc::session::answer;
use crate::rpc::timed::TimeLimit;
use crate::rpc::wire::{self, CAPS, Command, KEPT_GRAPHS, RequestLen};

/// The slowest rate of a whole request, in bytes per second.
const SLOWEST: u64 = 16 << 10;

/// A client while its connection lasts.
pub(super) struct ClientSession<'a> {
    pub(super) shared: &'a ServerState,
    pub(super) state: Arc<ClientState>,
    pub(super) socket: Peer,
    queues: HashMap<u32, Queue>,
    /// The kept graphs of each device. They are dropped before the buffers that they use.
    graphs: HashMap<u32, HashMap<u64, JudgedGraph>>,
    /// The last graph, as it was sent: without a number, clients send it again for each computation.
    last: Option<(Vec<u8>, JudgedGraph, HeldBytes)>,
    pub(super) buffers: Buffers,
    /// Data on their way between socket and device.
    pub(super) chunk: Vec<u8>,
}

impl<'a> ClientSession<'a> {
    pub(super) fn new(shared: &'a ServerState, state: Arc<ClientState>, socket: Peer) -> Self {
        let buffers = Buffers::new(shared.limits.buffers, Arc::clone(&state.budget));
        Self {
            shared,
            state,
            socket,
            queues: HashMap::new(),
            graphs: HashMap::new(),
            last: None,
            buffers,
            chunk: Vec::new(),
        }
    }

    /// Answers requests until the connection ends.
    pub(super) fn serve(&mut self) -> End {
        match self.greet().and_then(|()| self.requests()) {
            Err(_) if self.shared.is_stopping() => End::Stopped,
            Err(end) => end,
            Ok(never) => never,
        }
    }

    /// Allows as much time for `bytes` bytes as clients may take.
    fn limit(&mut self, bytes: u64) {
        let silence = self.shared.limits.progress.max(Duration::from_millis(1));
        let total = silence.saturating_add(Duration::from_secs(bytes / SLOWEST));
        self.socket.limit(TimeLimit { silence, total });
    }

    fn greet(&mut self) -> Outcome {
        self.limit(0);
        let (command, len) = self.head()?;
        need(command == Command::Hello && len == CAPS as u64, "it does not begin as a ggml RPC client does")?;
        let _caps = self.payload(len)?;
        Ok(answer(&mut self.socket, &wire::hello_reply())?)
    }

    fn requests(&mut self) -> Outcome<End> {
        loop {
            // Before and after it waits: a server that stops ends the reading of those that it sees waiting.
            self.state.waits.store(true, Ordering::SeqCst);
            if self.shared.is_stopping() {
                return Ok(End::Stopped);
            }
            let idle = self.shared.limits.idle.max(Duration::from_millis(1));
            // One byte ends it.
            self.socket.limit(TimeLimit { silence: idle, total: Duration::MAX });
            match self.socket.read_some().map_err(|error| (error.kind(), error)) {
                Ok(_) => {}
                Err((ErrorKind::UnexpectedEof, _)) => return Ok(End::Left),
                Err((ErrorKind::WouldBlock | ErrorKind::TimedOut, _)) => return Ok(End::Idle(idle)),
                Err((_, error)) => return Err(error.into()),
            }
            self.state.waits.store(false, Ordering::SeqCst);
            if self.shared.is_stopping() {
                return Ok(End::Stopped);
            }
            self.limit(0);
            let (command, len) = self.head()?;
            self.limit(len);
            let request = (wire::REQUEST_HEAD as u64).saturating_add(len);
            // Counted before the answer, so that whoever receives the answer finds it counted.
            self.state.traffic.add(0, request);
            self.handle(command, len)?;
        }
    }

    /// Reads a request's command and length.
    fn head(&mut self) -> Outcome<(Command, u64)> {
        let mut byte = [0];
        self.socket.read_exact(&mut byte)?;
        let [byte] = byte;
        let command = Command::from_byte(byte);
        let command = command.ok_or_else(|| End::refused(format!("the protocol has no command {byte}")))?;
        let len = self.socket.read_len()?;
        let fits = match command.request_len() {
            RequestLen::Exactly(expected) => len == expected,
            RequestLen::Any => true,
        };
        if fits { Ok((command, len)) } else { Err(End::refused(format!("{} has {len} bytes", command.name()))) }
    }

    /// Reads `len` bytes, which are no tensor's data.
    pub(super) fn payload(&mut self, len: u64) -> Outcome<Vec<u8>> {
        need(len <= self.shared.limits.request, "a request is longer than the server allows")?;
        let mut payload = Vec::new();
        let got = (&mut self.socket.reader).take(len).read_to_end(&mut payload)? as u64;
        if got == len { Ok(payload) } else { Err(End::Broken(ErrorKind::UnexpectedEof.into())) }
    }

    /// Sends a complete answer.
    pub(super) fn answer(&mut self, reply: &[u8]) -> Outcome {
        self.limit(reply.len() as u64);
        self.state.traffic.add_sent((wire::REPLY_HEAD + reply.len()) as u64);
        Ok(answer(&mut self.socket, reply)?)
    }

    pub(super) fn begin_answer(&mut self, len: u64) -> Outcome {
        self.limit(len);
        self.state.traffic.add_sent(wire::REPLY_HEAD as u64 + len);
        Ok(self.socket.writer.write_all(&len.to_le_bytes())?)
    }

    fn offer(&self, number: u32) -> Outcome<OfferedDevice> {
        let offer = self.shared.devices.get(number as usize).copied();
        offer.ok_or_else(|| End::refused(format!("the server has no device {number}")))
    }

    pub(super) fn device(&self, number: u32) -> Outcome<Device> {
        self.offer(number).map(|offer| offer.device)
    }

    fn handle(&mut self, command: Command, len: u64) -> Outcome {
        if command == Command::SetTensor {
            return self.set_tensor(len);
        }
        if command == Command::SetTensor2d {
            return self.set_tensor_2d(len);
        }
        let payload = self.payload(len)?;
        let mut fields = Fields(&payload);
        match command {
            Command::Hello => Err(End::refused("it greets twice")),
            Command::DeviceCount => {
                self.answer(&u32::try_from(self.shared.devices.len()).unwrap_or(u32::MAX).to_le_bytes())
            }
            Command::GetAlignment => {
                let alignment = self.offer(fields.word()?)?.alignment;
                self.answer(&(alignment as u64).to_le_bytes())
            }
            Command::GetMaxSize => {
                let size = self.offer(fields.word()?)?.max_size;
                self.answer(&(size as u64).to_le_bytes())
            }
            Command::GetDeviceMemory => {
                // A lost device has none.
                let memory = self.device(fields.word()?)?.memory();
                let (free, total) = memory.map_or((0, 0), |memory| (memory.free as u64, memory.total as u64));
                self.answer(&pair(free.min(self.state.budget.left()), total))
            }
            Command::AllocBuffer => {
                let (device, size) = (self.device(fields.word()?)?, fields.long()?);
                let number = self.buffers.add(device, size);
                self.answer(&number.map_or([0; 16], |number| pair(number, size)))
            }
            Command::BufferGetBase => {
                let base = self.buffers.get(fields.long()?)?.base();
                self.answer(&base.to_le_bytes())
            }
            Command::FreeBuffer => {
                self.buffers.remove(fields.long()?)?;
                // ggml's server discards all graphs, too, and its client sends them again.
                self.graphs.clear();
                self.last = None;
                Ok(())
            }
            Command::BufferClear => {
                let buffer = fields.long()?;
                self.buffers.get(buffer)?.clear(fields.byte()?)
            }
            Command::SetTensorHash => self.set_tensor_hash(fields),
            Command::GetTensor => self.get_tensor(fields),
            Command::GetTensor2d => self.get_tensor_2d(fields),
            Command::MemsetTensor => self.memset_tensor(fields),
            Command::CopyTensor => self.copy_tensor(fields),
            Command::InitTensor => self.init_tensor(fields),
            Command::GetAllocSize => self.get_alloc_size(fields),
            Command::GraphCompute => self.graph_compute(&payload),
            Command::GraphRecompute => {
                let (device, number) = (wire::device(&payload), wire::graph_number(&payload));
                self.recompute(device, number)
            }
            // Servers would connect to each other, at addresses that a client names.
            Command::CommInit => self.answer(&[0]),
            Command::CommAllreduce => Err(End::refused("no servers are connected to each other")),
            // The last two are handled above.
            Command::CommFree | Command::SetTensor | Command::SetTensor2d => Ok(()),
        }
    }

    fn graph_compute(&mut self, payload: &[u8]) -> Outcome {
        let mut fields = Fields(payload);
        let number = wire::graph_number(payload);
        let device = fields.word()?;
        if wire::NUMBERED {
            let _number = fields.long()?;
        }
        // What is judged is the same as long as the client has freed no buffer.
        if let Some((sent, mut graph, held)) = self.last.take()
            && sent == payload
        {
            self.queue(device)?.compute(&mut graph)?;
            self.last = Some((sent, graph, held));
            return Ok(());
        }
        let on = self.device(device)?;
        let mut graph = SentGraph::read(fields, self.shared.limits.graph_tensors)?.judge(&self.buffers, on)?;
        self.queue(device)?.compute(&mut graph)?;
        let Some(number) = number else {
            let held = self.buffers.budget.take(payload.len() as u64);
            self.last = held.map(|held| (payload.to_vec(), graph, held));
            return Ok(());
        };
        let kept = self.graphs.entry(device).or_default();
        // A side whose table is full discards all its graphs before it adds another one.
        if kept.len() >= KEPT_GRAPHS.min(self.shared.limits.graphs.max(1)) {
            kept.clear();
        }
        kept.insert(number, graph);
        Ok(())
    }

    fn recompute(&mut self, device: u32, number: Option<u64>) -> Outcome {
        let graphs = self.graphs.get_mut(&device);
        let graph = number.and_then(|number| graphs?.get_mut(&number));
        let graph = graph.ok_or_else(|| End::refused("the graph that it wants to repeat is not there"))?;
        match self.queues.get_mut(&device) {
            Some(queue) => queue.compute(graph),
            None => Err(End::refused("a graph was kept for a device without a queue")),
        }
    }

    fn queue(&mut self, device: u32) -> Outcome<&mut Queue> {
        if !self.queues.contains_key(&device) {
            let (shared, deadline) = (self.shared, Arc::clone(&self.state.deadline));
            let queue = Queue::new(self.device(device)?, shared.threads, shared.limits.computation, deadline)?;
            self.queues.insert(device, queue);
        }
        self.queues.get_mut(&device).ok_or_else(|| End::refused("a device has no queue"))
    }
}

pub(super) fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut both = [0; 16];
    let fields = first.to_le_bytes().into_iter().chain(second.to_le_bytes());
    both.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    both
}
