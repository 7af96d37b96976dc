//! The buffers of a client, by numbers that the server made up.
//!
//! ggml's protocol names a buffer by a number, and a place in it by an address. Both are made up: buffers are counted,
//! and the addresses are those of an address space that exists only in this table. A number or an address that is not
//! in it belongs to nobody.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use super::end::{End, Outcome, need};
use super::fields::WireTensor;
use crate::buffer::BufferType;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::header::Layout;
use crate::tensor::{Tensor, transfer};
use crate::weights::{State, WeightsBuilder};

const CALL: &str = "rpc::Server";

/// The first address, the room that each is a multiple of, and the end of all.
const FIRST: u64 = 1 << 32;
const ROOM: u64 = 1 << 21;
const END: u64 = 1 << 59;

/// A count of bytes with a limit, of one client or of all.
#[derive(Debug)]
pub(super) struct Budget {
    held: AtomicU64,
    limit: u64,
    /// The one that counts everything that this one does.
    whole: Option<Arc<Budget>>,
}

impl Budget {
    pub(super) fn new(limit: u64, whole: Option<Arc<Self>>) -> Self {
        Self { held: AtomicU64::new(0), limit, whole }
    }

    /// The bytes that can still be taken.
    pub(super) fn left(&self) -> u64 {
        let left = self.limit.saturating_sub(self.held());
        self.whole.as_ref().map_or(left, |whole| left.min(whole.left()))
    }

    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Takes `bytes` until the result is dropped; `None` if that is over the limit.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        let whole = match &self.whole {
            Some(whole) => Some(Box::new(whole.take(bytes)?)),
            None => None,
        };
        let fits = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(HeldBytes { budget: Arc::clone(self), bytes, _whole: whole })
    }
}

/// Bytes that are taken from a [`Budget`].
#[derive(Debug)]
pub(super) struct HeldBytes {
    budget: Arc<Budget>,
    bytes: u64,
    _whole: Option<Box<HeldBytes>>,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A buffer of a client: bytes on a device.
#[derive(Debug)]
pub(super) struct ClientBuffer {
    state: State,
    /// Its first address.
    base: u64,
    /// The size that the client asked for.
    size: usize,
    alignment: usize,
    buft: BufferType,
    _held: HeldBytes,
}

impl ClientBuffer {
    /// All bytes, as a tensor.
    pub(super) fn memory(&self) -> Outcome<Tensor<'_>> {
        self.state.iter().next().ok_or_else(|| End::refused("the buffer has no memory"))
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Whether `len` bytes from `start` on lie in the buffer.
    pub(super) fn holds(&self, start: usize, len: usize) -> bool {
        start.checked_add(len).is_some_and(|end| end <= self.size)
    }

    pub(super) fn is_host(&self) -> bool {
        self.buft.is_host()
    }

    pub(super) fn buffer_type(&self) -> BufferType {
        self.buft
    }

    /// Never frees the memory: a computation that could not be ended may still use it.
    pub(super) fn leak(self: Rc<Self>) {
        #[expect(clippy::mem_forget, reason = "the only way to keep what a running computation uses")]
        std::mem::forget(self);
    }

    pub(super) fn write(&self, at: usize, data: &[u8]) -> Outcome {
        Ok(transfer::write_bytes(CALL, self.memory()?.ptr(), at, data)?)
    }

    pub(super) fn read(&self, at: usize, to: &mut [u8]) -> Outcome {
        Ok(transfer::read_bytes_at(CALL, self.memory()?.ptr(), at, to)?)
    }

    pub(super) fn clear(&self, value: u8) -> Outcome {
        Ok(self.state.clear_bytes(value)?)
    }
}

/// A part of a buffer.
#[derive(Debug, Clone)]
pub(super) struct BufferPart {
    pub(super) buffer: Rc<ClientBuffer>,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl BufferPart {
    /// Whether the region lies in its buffer.
    pub(super) fn is_inside(&self) -> bool {
        self.buffer.holds(self.start, self.len)
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let end = |r: &Self| r.start.saturating_add(r.len);
        Rc::ptr_eq(&self.buffer, &other.buffer) && self.start < end(other) && other.start < end(self)
    }
}

/// The buffers of a client.
#[derive(Debug)]
pub(super) struct Buffers {
    list: HashMap<u64, Rc<ClientBuffer>>,
    made: u64,
    next: u64,
    limit: usize,
    pub(super) budget: Arc<Budget>,
}

impl Buffers {
    pub(super) fn new(limit: usize, budget: Arc<Budget>) -> Self {
        Self { list: HashMap::new(), made: 0, next: FIRST, limit, budget }
    }

    /// Makes a buffer and returns its number; `None` where there is no memory for it.
    pub(super) fn add(&mut self, device: Device, size: u64) -> Option<u64> {
        if self.list.len() >= self.limit {
            return None;
        }
        let held = self.budget.take(size.max(1))?;
        let room = size.max(1).checked_next_multiple_of(ROOM)?.checked_add(ROOM)?;
        let next = self.next.checked_add(room).filter(|&next| next <= END)?;
        let buffer = ClientBuffer::new(device, usize::try_from(size).ok()?, self.next, held).ok()?;
        self.next = next;
        self.made += 1;
        self.list.insert(self.made, Rc::new(buffer));
        Some(self.made)
    }

    pub(super) fn get(&self, number: u64) -> Outcome<&Rc<ClientBuffer>> {
        self.list.get(&number).ok_or_else(|| End::refused(format!("the client has no buffer {number}")))
    }

    pub(super) fn remove(&mut self, number: u64) -> Outcome {
        self.get(number)?;
        self.list.remove(&number);
        Ok(())
    }

    /// Where a tensor lies: its buffer, and the offset of its first byte.
    pub(super) fn place(&self, t: &WireTensor, layout: Layout) -> Outcome<(&Rc<ClientBuffer>, usize)> {
        let buffer = self.get(t.buffer)?;
        let at = t.data.checked_sub(buffer.base).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|&at| layout.fits(at, Some(buffer.size)));
        let at = at.ok_or_else(|| End::refused("a tensor lies outside of its buffer"))?;
        // Views begin at elements of tensors that are aligned.
        let unit = layout.dtype.type_size();
        let step = if t.view_src == 0 { buffer.alignment } else { 1 << unit.trailing_zeros().min(3) };
        need(at.is_multiple_of(step), "a tensor begins at an address that its buffer's device can't use")?;
        Ok((buffer, at))
    }

    /// `len` bytes of a tensor, from byte `offset` on.
    pub(super) fn part(&self, t: &WireTensor, offset: u64, len: u64) -> Outcome<BufferPart> {
        let layout = t.layout()?;
        let (buffer, start) = self.place(t, layout)?;
        let size = layout.span().unwrap_or(0);
        let range = usize::try_from(offset).ok().zip(usize::try_from(len).ok());
        let range = range.filter(|(offset, len)| offset.checked_add(*len).is_some_and(|end| end <= size));
        let (offset, len) = range.ok_or_else(|| {
            End::refused(format!("{len} bytes from byte {offset} on are not those of a tensor of {size} bytes"))
        })?;
        Ok(BufferPart { buffer: Rc::clone(buffer), start: start + offset, len })
    }
}

impl ClientBuffer {
    fn new(device: Device, size: usize, base: u64, held: HeldBytes) -> Result<Self> {
        let buft = device.buffer_type();
        let n = i64::try_from(size.max(1)).map_err(|_| Error::no_memory("a client's buffer"))?;
        let mut builder = WeightsBuilder::new();
        builder.tensor("memory", DType::I8, [n])?;
        let state = builder.place_state(buft)?;
        // As inputs do, it may hold indices: they are checked before each computation that reads them.
        if let Some(memory) = state.iter().next() {
            memory.ptr().add_flags(sys::GGML_TENSOR_FLAG_INPUT.cast_signed());
        }
        Ok(Self { state, base, size, alignment: buft.alignment()?, buft, _held: held })
    }
}
