//! Where tensors lie, and what a device knows of buffers.

use std::cell::Cell;

use ggml_sys as sys;

use super::Driver;
use super::state::{BASE, BufferState, DeviceState};
use crate::device::Device;
use crate::header::{Layout, TensorPtr};
use crate::shape::MAX_BYTES;

/// Where a tensor lies, if all of its bytes are inside one buffer.
pub(super) enum LentMemory<'a, B> {
    /// Host memory, from an address on, with the number of bytes.
    Host(*mut u8, usize),
    /// A buffer of the device's registry, from a byte offset on.
    Own(&'a B, usize),
}

/// How a device can use a buffer type.
#[derive(Clone, Copy)]
enum MemoryKind {
    /// The buffer type belongs to the device's registry.
    Own,
    /// It is host memory that the device can use.
    Host,
    Foreign,
}

/// How a device can use a buffer.
enum KnownBuffer<'a, D: Driver> {
    Own(&'a BufferState<D>),
    Host { start: usize, size: usize },
    Foreign,
}

impl<D: Driver> Clone for KnownBuffer<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for KnownBuffer<'_, D> {}

impl<'a, D: Driver> KnownBuffer<'a, D> {
    /// Classifies a buffer by its type. Empty buffers and ggml's multi-buffers, which consist of buffers, are foreign.
    ///
    /// # Safety
    ///
    /// `buffer` must be live for `'a`, and `kind_of` must answer as the device's [`DeviceState::kind_of`] does.
    unsafe fn of(
        buffer: *mut sys::ggml_backend_buffer,
        kind_of: impl FnOnce(*mut sys::ggml_backend_buffer_type) -> MemoryKind,
    ) -> Self {
        // SAFETY: `buffer` is live, by this function's `# Safety`; C reads a field.
        let buft = unsafe { sys::ggml_backend_buffer_get_type(buffer) };
        match kind_of(buft) {
            // SAFETY: `buffer` is live, by this function's `# Safety`; C compares a field.
            MemoryKind::Own if !unsafe { sys::ggml_backend_buffer_is_multi_buffer(buffer) } => {
                // SAFETY: `buffer` is live, by this function's `# Safety`; this reads a field.
                let context = unsafe { (*buffer).context }.cast_const().cast::<BufferState<D>>();
                // SAFETY: the context is NULL, or what `raw/buffer.rs` made for a buffer of this registry's types, all
                // of which are of `D`. It lives as long as the buffer, and is never borrowed mutably.
                unsafe { context.as_ref() }.map_or(Self::Foreign, Self::Own)
            }
            MemoryKind::Host => {
                // SAFETY: `buffer` is live, by this function's `# Safety`; host memory has a base.
                let start = unsafe { sys::ggml_backend_buffer_get_base(buffer) }.addr();
                // SAFETY: `buffer` is live, by this function's `# Safety`; C reads a field.
                Self::Host { start, size: unsafe { sys::ggml_backend_buffer_get_size(buffer) } }
            }
            MemoryKind::Own | MemoryKind::Foreign => Self::Foreign,
        }
    }

    /// Where a tensor of this buffer lies, if all of it is inside the buffer.
    #[inline]
    fn memory_of(self, t: TensorPtr) -> Option<LentMemory<'a, D::Buffer>> {
        let size = nbytes(t)?;
        let data = t.data();
        let inside = |start: usize, len: usize| {
            let offset = data.addr().checked_sub(start)?;
            (!data.is_null() && offset <= len && size <= len - offset).then_some(offset)
        };
        match self {
            Self::Own(state) => Some(LentMemory::Own(&state.buffer, inside(BASE, state.size)?)),
            Self::Host { start, size: len } => inside(start, len).map(|_| LentMemory::Host(data.cast(), size)),
            Self::Foreign => None,
        }
    }
}

/// The bytes that a tensor with this layout spans; `None` for a layout that no tensor can have.
pub(super) fn span(layout: Layout) -> Option<usize> {
    let positive = layout.ne.iter().all(|&n| n > 0);
    layout.span().filter(|&n| positive && n <= MAX_BYTES)
}

/// [`span`] of a tensor's layout, with a fast path for most tensors.
#[inline]
fn nbytes(t: TensorPtr) -> Option<usize> {
    let (dtype, ne) = (t.dtype(), t.ne());
    if !t.is_clearly_small() || dtype.block_size() != 1 || ne.contains(&0) {
        return span(t.layout());
    }
    // The tensor is so small that nothing can overflow.
    let steps = |(n, nb): (i64, usize)| usize::try_from(n - 1).unwrap_or(0) * nb;
    Some(dtype.type_size() + ne.into_iter().zip(t.nb()).map(steps).sum::<usize>())
}

impl<D: Driver> DeviceState<D> {
    /// Whether the device can use a buffer type: its own, or host memory if the device has no memory of its own.
    pub(super) fn uses(&self, buft: *mut sys::ggml_backend_buffer_type) -> bool {
        if self.info.has_memory {
            return self.buft() == buft;
        }
        // SAFETY: the buffer type is live: C passed it, or it is a live buffer's. C reads it.
        let device = unsafe { sys::ggml_backend_buft_get_device(buft) };
        // SAFETY: `device` is NULL, or a device, which is never freed.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: the buffer type is live: C passed it, or it is a live buffer's. C reads it.
        let host = unsafe { sys::ggml_backend_buft_is_host(buft) };
        // C also calls the memory of a meta device of CPUs host memory, but buffers of that device have no addresses.
        host && !device.is_some_and(crate::device::meta::is_meta)
    }

    fn kind_of(&self, buft: *mut sys::ggml_backend_buffer_type) -> MemoryKind {
        match buft {
            buft if self.owns(buft) => MemoryKind::Own,
            buft if !self.info.has_memory && self.uses(buft) => MemoryKind::Host,
            _ => MemoryKind::Foreign,
        }
    }

    /// The state of a buffer of this registry. Empty buffers and ggml's multi-buffers, which consist of buffers, have
    /// none.
    ///
    /// # Safety
    ///
    /// `buffer` must be live for `'a`.
    pub(super) unsafe fn buffer_of<'a>(&self, buffer: *mut sys::ggml_backend_buffer) -> Option<&'a BufferState<D>> {
        // SAFETY: `buffer` is live for `'a`, by this function's `# Safety`.
        match unsafe { KnownBuffer::<D>::of(buffer, |buft| self.kind_of(buft)) } {
            KnownBuffer::Own(state) => Some(state),
            KnownBuffer::Host { .. } | KnownBuffer::Foreign => None,
        }
    }

    /// Where a tensor lies, if all of it is in one buffer: one of host memory that the device can use, or one of the
    /// device's registry.
    ///
    /// # Safety
    ///
    /// The tensor's buffer must live for `'a`.
    pub(super) unsafe fn memory_of<'a>(&self, t: TensorPtr) -> Option<LentMemory<'a, D::Buffer>> {
        let buffer = t.root().buffer();
        if buffer.is_null() {
            return None;
        }
        // SAFETY: the buffer is not NULL (checked here), so it is live, by this function's `# Safety`.
        unsafe { KnownBuffer::<D>::of(buffer, |buft| self.kind_of(buft)) }.memory_of(t)
    }
}

/// A cache of the last few lookups, each by an address. No address is 0.
struct Recent<V> {
    addresses: [Cell<usize>; 4],
    values: [Cell<Option<V>>; 4],
    next: Cell<usize>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { addresses: [const { Cell::new(0) }; 4], values: [const { Cell::new(None) }; 4], next: Cell::new(0) }
    }
}

impl<V: Copy> Recent<V> {
    #[inline]
    fn get(&self, address: usize, find: impl FnOnce() -> V) -> V {
        for (known, value) in self.addresses.iter().zip(&self.values) {
            if known.get() == address
                && let Some(value) = value.get()
            {
                return value;
            }
        }
        self.put(address, find())
    }

    #[cold]
    fn put(&self, address: usize, value: V) -> V {
        let i = self.next.get() % self.values.len();
        self.next.set(i + 1);
        if let (Some(to), Some(known)) = (self.values.get(i), self.addresses.get(i)) {
            to.set(Some(value));
            known.set(address);
        }
        value
    }
}

/// A stream's cache of how its device can use buffer types. Buffer types are never freed, so the answers stay true.
#[derive(Default)]
pub(super) struct Types(Recent<MemoryKind>);

/// A computation's cache of how its device can use buffers.
pub(super) struct Known<'a, D: Driver> {
    device: &'static DeviceState<D>,
    types: &'a Types,
    buffers: Recent<KnownBuffer<'a, D>>,
}

impl<'a, D: Driver> Known<'a, D> {
    /// # Safety
    ///
    /// The buffers of all tensors that are looked up must live for `'a`, and `types` must belong to the device.
    pub(super) unsafe fn new(device: &'static DeviceState<D>, types: &'a Types) -> Self {
        Self { device, types, buffers: Recent::default() }
    }

    pub(super) fn device(&self) -> &'static DeviceState<D> {
        self.device
    }

    /// Where a tensor lies, as [`DeviceState::memory_of`] says.
    #[inline]
    pub(super) fn memory_of(&self, t: TensorPtr) -> Option<LentMemory<'a, D::Buffer>> {
        let buffer = t.root().buffer();
        if buffer.is_null() {
            return None;
        }
        let kind_of =
            |buft: *mut sys::ggml_backend_buffer_type| self.types.0.get(buft.addr(), || self.device.kind_of(buft));
        // SAFETY: the buffer is not NULL (checked here), so it is live, by the `# Safety` of `new`. The cache has what
        // `kind_of` said.
        self.buffers.get(buffer.addr(), || unsafe { KnownBuffer::of(buffer, kind_of) }).memory_of(t)
    }
}
