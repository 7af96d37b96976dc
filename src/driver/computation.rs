//! One computation: which memory its nodes lend, and which results must have been written when it ends.

use std::cell::Cell;

use ggml_sys as sys;

use super::memory::{Known, LentMemory, Types};
use super::state::DeviceState;
use super::view::{is_computed, tensor};
use super::{Driver, Failure};
use crate::ffi;
use crate::header::TensorPtr;

/// The number of slots for sources that each operation has.
pub(super) const SLOTS: usize = sys::GGML_MAX_SRC as usize;

/// The nodes of a graph that a device computes. All their operands lie in memory that the device can use.
pub(super) struct Computation<'a, D: Driver> {
    list: &'a [*mut sys::ggml_tensor],
    known: Known<'a, D>,
    /// Whether the memory of one of the nodes is lent.
    lends: Cell<bool>,
    /// The number of nodes at the start of the list whose results in host memory were found to be written.
    written: Cell<usize>,
    /// Copies of sources that overlap the result of one node. The vector is reused for the next node.
    copies: Cell<Vec<u8>>,
}

/// Where the bytes of a source lie: their address and their number.
#[derive(Clone, Copy)]
enum Source {
    None,
    Apart(*const u8, usize),
    /// A source that overlaps the result.
    Shared(*const u8, usize),
}

impl<'a, D: Driver> Computation<'a, D> {
    /// # Safety
    ///
    /// All tensors and their sources must meet the invariants of [`TensorPtr`] for `'a`, and have memory that lives and
    /// that no other thread writes to for `'a`. The memory of leaves must be initialised. `types` must belong to the
    /// device.
    ///
    /// # Errors
    ///
    /// A failure if an operand lies in memory that the device can't use, or not wholly inside its buffer.
    pub(super) unsafe fn new(
        list: &'a [*mut sys::ggml_tensor],
        device: &'static DeviceState<D>,
        types: &'a Types,
    ) -> Result<Self, Failure> {
        // SAFETY: the buffers live for `'a`, by this function's `# Safety`; only tensors of the list and their sources
        // are looked up.
        let known = unsafe { Known::new(device, types) };
        let mut in_host_memory = false;
        for t in list.iter().filter_map(|&t| tensor(t)).filter(|t| is_computed(*t)) {
            let result = known.memory_of(t);
            in_host_memory |= matches!(result, Some(LentMemory::Host(..)));
            let foreign = t.sources().find(|source| known.memory_of(*source).is_none());
            if let Some(operand) = foreign.or_else(|| result.is_none().then_some(t)) {
                let (op, what) = (t.op_name(), operand.info());
                return Err(Failure::new(format!("{op}: {what} doesn't lie in memory of the device")));
            }
        }
        // Results in the device's own memory are not looked at.
        let written = Cell::new(if in_host_memory { 0 } else { list.len() });
        Ok(Self { list, known, lends: Cell::new(false), written, copies: Cell::default() })
    }

    pub(super) fn known(&self) -> &Known<'a, D> {
        &self.known
    }

    /// The first node that needs a computation, from number `from` on, with its own number.
    #[inline]
    pub(super) fn next(&self, from: usize) -> Option<(usize, TensorPtr)> {
        let rest = self.list.get(from..)?.iter().enumerate();
        rest.filter_map(|(i, &t)| Some((from + i, tensor(t)?))).find(|(_, t)| is_computed(*t))
    }

    /// Checks that the nodes before this number have written the results that lie in host memory.
    #[inline]
    fn check_written(&self, number: usize) -> Result<(), Failure> {
        while self.written.get() < number {
            let Some((i, t)) = self.next(self.written.get()).filter(|(i, _)| *i < number) else { break };
            if let Some(LentMemory::Host(..)) = self.known.memory_of(t) {
                let (op, result) = (t.op_name(), t.info());
                let text = format!("{op}: {result} has no value; nodes write theirs in order, by `Node::on_host`");
                return Err(Failure::new(text));
            }
            self.written.set(i + 1);
        }
        Ok(())
    }

    /// Checks, when the driver is done, that all results were written.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        self.check_written(self.list.len())
    }

    #[inline]
    fn host(&self, t: TensorPtr) -> Result<(*mut u8, usize), Failure> {
        match self.known.memory_of(t) {
            Some(LentMemory::Host(start, size)) => Ok((start, size)),
            _ => Err(Failure::new(format!("{} doesn't lie in host memory", t.info()))),
        }
    }

    /// Implements [`Node::on_host`](super::Node::on_host) for the node with this number in the list.
    pub(super) fn lend<R>(
        &self,
        number: usize,
        t: TensorPtr,
        f: impl FnOnce(&mut [u8], &[&[u8]]) -> R,
    ) -> Result<R, Failure> {
        if self.lends.replace(true) {
            return Err(Failure::new("the memory of another node is lent already"));
        }
        let _back = Back(&self.lends);
        self.check_written(number)?;
        let (to, size) = self.host(t)?;
        let mut places = [Source::None; SLOTS];
        let mut shared = 0;
        for (place, source) in places.iter_mut().zip(t.slots()) {
            let Some(source) = source else { continue };
            let (from, n) = self.host(source)?;
            let apart = from.addr() + n <= to.addr() || to.addr() + size <= from.addr();
            *place = if apart { Source::Apart(from, n) } else { Source::Shared(from, n) };
            shared += if apart { 0 } else { n };
        }
        let mut copies = self.copies.take();
        copies.clear();
        copies.try_reserve(shared)?;
        for place in places {
            if let Source::Shared(from, n) = place {
                // SAFETY: these are `n` bytes of host memory inside a live buffer (`memory_of`), which nothing writes
                // to meanwhile (`new`): those of a leaf, or of a result that was written before (`check_written`). The
                // slice ends here.
                copies.extend_from_slice(unsafe { ffi::slice(from, n) });
            }
        }
        if t.view_src().is_none() {
            // SAFETY: these are `size` bytes of host memory inside a live buffer (`memory_of`), which nothing else uses
            // meanwhile: one node lends at a time, and the sources that overlap were copied.
            unsafe { to.write_bytes(0, size) };
        }
        let mut copied = copies.as_slice();
        let sources = places.map(|place| match place {
            Source::None => &[],
            // SAFETY: these are `n` initialised bytes of host memory inside a live buffer (`memory_of`). They don't
            // overlap the result, and nothing writes to them until the end of this function (`new`).
            Source::Apart(from, n) => unsafe { ffi::slice(from, n) },
            Source::Shared(_, n) => copied.split_off(..n).unwrap_or_default(),
        });
        // SAFETY: nothing else uses these `size` bytes of host memory, as for `write_bytes`. All are initialised: they
        // were zeroed, or are those of the leaf or the result that the operation changes.
        let value = f(unsafe { ffi::slice_mut(to, size) }, &sources);
        self.written.set(self.written.get().max(number + 1));
        self.copies.set(copies);
        Ok(value)
    }
}

/// A guard whose drop records that no memory is lent any more.
struct Back<'a>(&'a Cell<bool>);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
