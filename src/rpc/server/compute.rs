//! Computes judged graphs, on a queue of the client's own for each device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::end::{End, Outcome, need};
use super::graph::{Demand, JudgedGraph};
use crate::backend::{Backend, check_status};
use crate::device::{Device, DeviceType};
use crate::dtype::DType;
use crate::error::Result;
use crate::guard;
use crate::header::{Layout, TensorPtr};
use crate::list;
use crate::tensor::transfer;

const CALL: &str = "rpc::Server";

/// When a client's computation must end: at a time, or because the server stops. Asked before each operation.
#[derive(Debug)]
pub(super) struct Deadline {
    start: Instant,
    /// In milliseconds from the start on.
    at: AtomicU64,
    pub(super) stop: AtomicBool,
}

impl Default for Deadline {
    fn default() -> Self {
        Self { start: Instant::now(), at: u64::MAX.into(), stop: false.into() }
    }
}

impl Deadline {
    fn begin(&self, limit: Duration) {
        self.at.store(millis(self.start.elapsed().saturating_add(limit)), Ordering::Relaxed);
    }

    fn end(&self) {
        self.at.store(u64::MAX, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || millis(self.start.elapsed()) >= self.at.load(Ordering::Relaxed)
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// A client's queue on one device.
#[derive(Debug)]
pub(super) struct Queue {
    backend: Backend,
    deadline: Arc<Deadline>,
    limit: Duration,
}

impl Queue {
    pub(super) fn new(device: Device, threads: usize, limit: Duration, deadline: Arc<Deadline>) -> Result<Self> {
        let mut backend = device.init()?;
        if device.device_type() == DeviceType::Cpu || device.is_blas() {
            backend.set_threads(threads)?;
        }
        if device.device_type() == DeviceType::Cpu {
            let deadline = Arc::clone(&deadline);
            backend.set_abort(move || deadline.is_over())?;
        }
        Ok(Self { backend, deadline, limit })
    }

    /// Computes a graph, and waits for it.
    pub(super) fn compute(&mut self, graph: &mut JudgedGraph) -> Outcome {
        self.deadline.begin(self.limit);
        let outcome = self.steps(graph);
        self.deadline.end();
        outcome
    }

    fn steps(&mut self, graph: &mut JudgedGraph) -> Outcome {
        for step in &mut graph.steps {
            step.demands.iter().try_for_each(|&demand| check(demand).and_then(|()| self.is_in_time()))?;
            self.backend.check()?;
            let status = step.part.compute(&mut self.backend);
            if guard::interrupted(&status) && !self.backend.poison() {
                graph.buffers.iter().cloned().for_each(super::memory::ClientBuffer::leak);
            }
            let computed = status.and_then(|status| check_status(CALL, status));
            self.is_in_time()?;
            computed?;
            self.backend.check()?;
        }
        Ok(())
    }

    fn is_in_time(&self) -> Outcome {
        if self.deadline.stop.load(Ordering::Relaxed) {
            return Err(End::Stopped);
        }
        need(!self.deadline.is_over(), "a computation took longer than the server allows")
    }
}

/// The bytes of an operand that are read at once.
const PIECE: usize = 256 << 10;

/// The bytes that checking a demand takes, apart from a piece of the operand.
pub(super) fn scratch(demand: Demand) -> u64 {
    let t = demand.tensor();
    let number = |n: Option<usize>| n.map_or(u64::MAX, |n| n as u64);
    let row = if demand.is_distinct() { number(row_len(t)).saturating_mul(size_of::<i64>() as u64) } else { 0 };
    // Elements that do not lie in order are read with what lies between them, and then put in order.
    let all = number(t.span()).saturating_add(number(Layout::packed(t.dtype(), t.ne()).span()));
    row.saturating_add(if t.is_contiguous() { 0 } else { all })
}

fn row_len(t: TensorPtr) -> Option<usize> {
    let [n, ..] = t.ne();
    usize::try_from(n).ok()
}

/// Calls `see` with the bytes of an operand's elements, in order.
fn pieces(t: TensorPtr, mut see: impl FnMut(&[u8]) -> Outcome) -> Outcome {
    if !t.is_contiguous() {
        return see(&transfer::read_raw(CALL, t)?);
    }
    let all = t.span().unwrap_or(0);
    let mut piece = list::filled(0, all.min(PIECE), "indices to check")?;
    for start in (0..all).step_by(PIECE) {
        let Some(bytes) = piece.get_mut(..PIECE.min(all - start)) else { break };
        transfer::read_bytes_at(CALL, t, start, bytes)?;
        see(bytes)?;
    }
    Ok(())
}

/// Checks what operations read from memory as it is now. Only their client writes to it, and not at this time.
fn check(demand: Demand) -> Outcome {
    match demand {
        Demand::NoNan(t) => {
            need(t.dtype() == DType::F32, "only f32 can be sorted")?;
            let is_nan = |n: &[u8; 4]| f32::from_le_bytes(*n).is_nan();
            pieces(t, |bytes| need(!bytes.as_chunks().0.iter().any(is_nan), "NaN can't be sorted"))
        }
        Demand::Indices { of, below, distinct } => {
            let mut row = DistinctRow { len: row_len(of).filter(|_| distinct), values: Vec::new() };
            let mut index = |value: i64| {
                if !(0..below).contains(&value) {
                    return Err(End::refused(format!("index {value} is not below {below}")));
                }
                row.add(value)
            };
            pieces(of, |bytes| match of.dtype() {
                DType::I32 => bytes.as_chunks().0.iter().try_for_each(|n| index(i32::from_le_bytes(*n).into())),
                DType::I64 => bytes.as_chunks().0.iter().try_for_each(|n| index(i64::from_le_bytes(*n))),
                _ => Err(End::refused("indices have a type that is none of theirs")),
            })
        }
    }
}

/// The values of a row, which must differ.
struct DistinctRow {
    /// The length of each row; `None` where equal values are allowed.
    len: Option<usize>,
    values: Vec<i64>,
}

impl DistinctRow {
    fn add(&mut self, value: i64) -> Outcome {
        let Some(len) = self.len else { return Ok(()) };
        if self.values.capacity() < len {
            self.values = list::reserved(len, "indices to check")?;
        }
        self.values.push(value);
        if self.values.len() < len {
            return Ok(());
        }
        self.values.sort_unstable();
        let differ = self.values.windows(2).all(|pair| pair.first() != pair.last());
        self.values.clear();
        need(differ, "indices of rows to write are not distinct")
    }
}
