//! Named leaves with their own memory: the common part of weights and states.

use std::collections::HashMap;

use ggml_sys as sys;

use super::index::{Id, Place};
use super::packed;
use crate::buffer::{self, Buffer, BufferType};
use crate::context::Context;
use crate::device::Device;
use crate::device::meta;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::pieces::{self, Pieces};
use crate::tensor::transfer;

/// What there is no memory for, in errors.
const NAMES: &str = "a list of tensors";

/// Leaves without memory.
#[derive(Default)]
pub(super) struct Leaves {
    ctx: Context,
    tensors: Vec<TensorPtr>,
    names: HashMap<Box<str>, usize>,
    id: Id,
}

/// Leaves with memory.
///
/// # Invariants
///
/// Each tensor lies in one of `buffers` and its header in `ctx`. Neither is written again, so both are read-only until
/// they are dropped, headers first.
pub(super) struct Placed {
    leaves: Leaves,
    buffers: Vec<Buffer>,
    /// Declared after the buffers, so that it is dropped after the buffer that uses it.
    host_memory: Option<HostMemory>,
}

/// The user's memory with a buffer that wraps it, if any tensors lie there. Nothing may write to them.
struct HostMemory {
    buffer: Option<*mut sys::ggml_backend_buffer>,
    _memory: Box<dyn AsRef<[u8]> + Send + Sync>,
}

// SAFETY: the pointers refer to headers in `ctx`, which moves with them.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the headers move with their pointers")]
unsafe impl Send for Leaves {}
// SAFETY: the pointer is only compared.
unsafe impl Send for HostMemory {}

impl Leaves {
    pub(super) fn add(&mut self, name: &str, dtype: DType, shape: Shape) -> Result<()> {
        if self.names.contains_key(name) {
            return Err(Error::Duplicate { call: "WeightsBuilder::tensor", what: "tensor", name: name.into() });
        }
        let t = self.ctx.leaf("tensor", name, dtype, shape)?.ptr();
        let key = list::text(name, NAMES)?;
        self.names.try_reserve(1).map_err(|_| Error::no_memory(NAMES))?;
        list::push(&mut self.tensors, t, NAMES)?;
        self.names.insert(key, self.tensors.len() - 1);
        Ok(())
    }

    /// The tensors with their whole names (ggml cuts long ones), in the order in which they were added.
    fn named(&self) -> Result<impl Iterator<Item = (&str, TensorPtr)>> {
        let mut names = list::collect(&self.names, NAMES)?;
        names.sort_unstable_by_key(|(_, i)| **i);
        Ok(names.into_iter().map(|(name, _)| &**name).zip(self.tensors.iter().copied()))
    }

    /// The total size of the buffers for all tensors in one buffer type.
    pub(super) fn size(&self, buft: BufferType) -> Result<usize> {
        let chunks = lay_out_in(buft, buft.max_size()?, &self.tensors)?;
        // An RPC server may report any sizes, so the sum saturates.
        Ok(chunks.iter().fold(0, |sum, chunk| chunk.size.saturating_add(sum)))
    }

    /// Gives each tensor memory of the type that `choose` names for it, all of it zero.
    pub(super) fn place(
        self,
        owner: Owner,
        mut choose: impl FnMut(&str, DType, Shape) -> BufferType,
    ) -> Result<Placed> {
        let types = list::collect(self.named()?.map(|(name, t)| choose(name, t.dtype(), t.ne().into())), NAMES)?;
        self.place_each(owner, types)
    }

    /// Allocates each tensor in its own buffer type, in the order in which they were added.
    pub(super) fn place_each(self, owner: Owner, types: impl IntoIterator<Item = BufferType>) -> Result<Placed> {
        let mut groups = Groups::default();
        for ((_, t), buft) in self.named()?.zip(types) {
            groups.add(buft, t)?;
        }
        let buffers = groups.place(owner)?;
        Ok(Placed { leaves: self, buffers, host_memory: None })
    }

    /// Places each tensor at the byte offset in `memory` that `choose` returns for its name, zero-copy, or allocates it
    /// in the buffer type that `choose` returns instead.
    pub(super) fn place_over(
        self,
        device: Device,
        memory: Box<dyn AsRef<[u8]> + Send + Sync>,
        mut choose: impl FnMut(&str) -> Result<Result<usize, BufferType>>,
    ) -> Result<Placed> {
        let (mut mapped, mut groups) = (Vec::new(), Groups::default());
        for (name, t) in self.named()? {
            match choose(name)? {
                Ok(offset) => list::push(&mut mapped, (t, offset), NAMES)?,
                Err(buft) => groups.add(buft, t)?,
            }
        }
        let mut buffers = groups.place(Owner::Weights)?;
        let mut over = None;
        if !mapped.is_empty() {
            let largest = mapped.iter().filter_map(|(t, _)| t.span()).max().unwrap_or(0);
            // SAFETY: the box moves beside the buffer, and is dropped after it (field order). It is never borrowed
            // mutably, and nothing here writes to tensors in host memory (Placed::writable): the bytes stay as they are.
            let mut buffer = unsafe { Buffer::from_host_memory(device, (*memory).as_ref(), largest) }?;
            buffer.mark_as_weights();
            for (t, offset) in mapped {
                buffer.place(t, offset)?;
                t.set_owner(Owner::Weights);
            }
            over = Some(buffer.as_ptr());
            list::push(&mut buffers, buffer, NAMES)?;
        }
        let host_memory = Some(HostMemory { buffer: over, _memory: memory });
        Ok(Placed { leaves: self, buffers, host_memory })
    }
}

/// Tensors grouped by buffer type; a list, as there are few types.
#[derive(Default)]
struct Groups(Vec<(BufferType, Vec<TensorPtr>)>);

impl Groups {
    fn add(&mut self, buft: BufferType, t: TensorPtr) -> Result<()> {
        match self.0.iter_mut().find(|(b, _)| *b == buft) {
            Some((_, tensors)) => list::push(tensors, t, NAMES),
            None => list::push(&mut self.0, (buft, vec![t]), NAMES),
        }
    }

    /// Allocates all tensors. Those of one buffer type share buffers.
    fn place(self, owner: Owner) -> Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        for (buft, tensors) in self.0 {
            place_group(buft, buft.max_size()?, &tensors, owner, &mut buffers)?;
        }
        Ok(buffers)
    }
}

/// The layout of one buffer: its tensors' offsets, and its size.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chunk {
    offsets: Vec<usize>,
    size: usize,
}

/// Lays out tensors of these sizes in order, in as few buffers as the maximum size allows, which is none's.
fn lay_out(sizes: &[usize], alignment: usize, max: usize) -> Result<Vec<Chunk>> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for &size in sizes {
        let fits = |chunk: &Chunk| {
            let begin = chunk.size.checked_next_multiple_of(alignment)?;
            begin.checked_add(size).filter(|&end| end <= max).map(|end| (begin, end))
        };
        let (begin, end) = if let Some(place) = chunks.last().and_then(fits) {
            place
        } else {
            list::push(&mut chunks, Chunk::default(), NAMES)?;
            (0, size)
        };
        if let Some(chunk) = chunks.last_mut() {
            list::push(&mut chunk.offsets, begin, NAMES)?;
            chunk.size = end;
        }
    }
    Ok(chunks)
}

/// [`lay_out`] for tensors in a buffer type with buffers of at most `max` bytes.
fn lay_out_in(buft: BufferType, max: usize, tensors: &[TensorPtr]) -> Result<Vec<Chunk>> {
    let mut sizes = list::filled(0, tensors.len(), NAMES)?;
    for (size, &t) in sizes.iter_mut().zip(tensors) {
        *size = buft.alloc_size_of(t)?;
    }
    if let Some((t, size)) = tensors.iter().zip(&sizes).find(|(_, size)| **size > max) {
        let name = buft.name();
        let expected = format!("a tensor in buffer type {name} may have {max} bytes, this one needs {size}").into();
        return Err(Error::Shape { call: "WeightsBuilder::place", operands: [t.info()].into(), expected });
    }
    lay_out(&sizes, buft.alignment()?, max)
}

/// Allocates tensors in one buffer type, in buffers of at most `max` bytes.
fn place_group(
    buft: BufferType,
    max: usize,
    tensors: &[TensorPtr],
    owner: Owner,
    buffers: &mut Vec<Buffer>,
) -> Result<()> {
    if let Some(divided) = meta::divide(buft, tensors, owner)? {
        let mut buffer = Buffer::divided(buft, tensors, divided)?;
        if owner != Owner::State {
            buffer.mark_as_weights();
        }
        for t in tensors {
            t.set_owner(owner);
        }
        buffers.push(buffer);
        return Ok(());
    }
    let owner = packed::owner(buft, tensors, owner)?;
    let mut rest = tensors.iter();
    for chunk in lay_out_in(buft, max, tensors)? {
        let mut buffer = Buffer::zeroed(buft, chunk.size)?;
        if owner != Owner::State {
            buffer.mark_as_weights();
        }
        for (offset, &t) in chunk.offsets.into_iter().zip(&mut rest) {
            buffer.place(t, offset)?;
            t.set_owner(owner);
        }
        list::push(buffers, buffer, NAMES)?;
    }
    Ok(())
}

impl Placed {
    pub(super) fn find(&self, name: &str) -> Result<TensorPtr> {
        let found = self.leaves.names.get(name).and_then(|&i| self.leaves.tensors.get(i));
        found.copied().ok_or_else(|| self.no_such(name))
    }

    #[cold]
    fn no_such(&self, name: &str) -> Error {
        list::no_such(name, self.leaves.names.keys().map(AsRef::as_ref))
    }

    pub(super) fn index(&self, name: &str) -> Result<Place> {
        let i = self.leaves.names.get(name).copied().ok_or_else(|| self.no_such(name))?;
        Ok(Place { owner: self.leaves.id, i })
    }

    /// The tensor at an index, unless that is one of others.
    #[inline]
    pub(super) fn at(&self, place: Place) -> Option<Tensor<'_>> {
        let ptr = *self.leaves.tensors.get(place.i).filter(|_| place.owner == self.leaves.id)?;
        // SAFETY: header and memory live as long as `self`, which the result borrows.
        Some(unsafe { Tensor::new(ptr) })
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        let ptr = self.find(name)?;
        // SAFETY: header and memory live as long as `self`, which the result borrows.
        Ok(unsafe { Tensor::new(ptr) })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.leaves.tensors.iter().map(|&ptr| {
            // SAFETY: header and memory live as long as `self`, which the result borrows.
            unsafe { Tensor::new(ptr) }
        })
    }

    /// A tensor by name, if it may be overwritten.
    pub(super) fn writable(&self, call: &'static str, name: &str) -> Result<TensorPtr> {
        let t = self.find(name)?;
        if self.host_memory.as_ref().is_some_and(|memory| memory.buffer == Some(t.buffer())) {
            return Err(Error::Frozen { call, tensor: t.info() });
        }
        Ok(t)
    }

    pub(super) fn set<T: Element>(&self, call: &'static str, name: &str, data: &[T]) -> Result<()> {
        transfer::write(call, self.writable(call, name)?, data)
    }

    pub(super) fn set_bytes(&self, call: &'static str, name: &str, data: &[u8]) -> Result<()> {
        transfer::write_raw(call, self.writable(call, name)?, data)
    }

    pub(super) fn set_bytes_at(&self, call: &'static str, name: &str, offset: usize, data: &[u8]) -> Result<()> {
        transfer::write_bytes(call, self.writable(call, name)?, offset, data)
    }

    pub(super) fn set_2d<T: Element>(&self, call: &'static str, name: &str, at: Pieces, data: &[T]) -> Result<()> {
        pieces::write(call, self.writable(call, name)?, at, data)
    }

    pub(super) fn fill_bytes(&self, call: &'static str, name: &str, value: u8) -> Result<()> {
        transfer::fill(call, self.writable(call, name)?, value)
    }

    pub(super) fn copy(&self, call: &'static str, name: &str, from: Tensor<'_>) -> Result<()> {
        let to = self.writable(call, name)?;
        // A view outside of an allocation has no buffer, and C asserts that there is one.
        if from.ptr().owner() == Owner::Graph || from.is_view() {
            return Err(Error::NotPart { call, tensor: from.info(), whole: "the tensors of any weights or state" });
        }
        transfer::copy(call, from.ptr(), to)
    }

    pub(super) fn clear_bytes(&self, value: u8) -> Result<()> {
        let mut tensors = self.leaves.tensors.iter().copied();
        if value != 0 && tensors.clone().any(buffer::fills_words) {
            // Vulkan's `ggml_backend_buffer_clear` sets one byte of every four.
            return tensors.try_for_each(|t| transfer::fill("State::clear_bytes", t, value));
        }
        self.buffers.iter().try_for_each(|b| b.clear(value))
    }

    pub(super) fn read_2d<T: Element>(&self, call: &'static str, name: &str, at: Pieces, to: &mut [T]) -> Result<()> {
        pieces::read(call, self.find(name)?, at, to)
    }

    pub(super) fn read_bytes(&self, call: &'static str, name: &str) -> Result<Vec<u8>> {
        transfer::read_raw(call, self.find(name)?)
    }

    pub(super) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    pub(super) fn len(&self) -> usize {
        self.leaves.tensors.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lay_out_fills_a_buffer_before_the_next() {
        let chunk = |offsets: &[usize], size| Chunk { offsets: offsets.into(), size };
        assert_eq!(lay_out(&[], 32, 100).unwrap(), [], "nothing");
        let all = lay_out(&[10, 40, 32, 1], 32, usize::MAX).unwrap();
        assert_eq!(all, [chunk(&[0, 32, 96, 128], 129)], "aligned");
        let split = lay_out(&[10, 40, 32, 100, 1, 32], 32, 100).unwrap();
        let want = [chunk(&[0, 32], 72), chunk(&[0], 32), chunk(&[0], 100), chunk(&[0, 32], 64)];
        assert_eq!(split, want, "no buffer is larger than 100 bytes");
        let huge = lay_out(&[usize::MAX - 1, usize::MAX], 32, usize::MAX).unwrap();
        assert_eq!(huge, [chunk(&[0], usize::MAX - 1), chunk(&[0], usize::MAX)], "sums don't overflow");
    }

    /// The available devices have no small buffers, so this test sets a small maximum.
    #[test]
    fn place_splits_weights_over_several_buffers() {
        let buft = Device::cpu().unwrap().buffer_type();
        let mut leaves = Leaves::default();
        for (i, n) in [8, 8, 16, 4].into_iter().enumerate() {
            leaves.add(&format!("t{i}"), DType::F32, [n].into()).unwrap();
        }
        let mut buffers = Vec::new();
        place_group(buft, 96, &leaves.tensors, Owner::State, &mut buffers).unwrap();
        let sizes: Vec<_> = buffers.iter().map(|b| (b.size(), b.buffer_type())).collect();
        assert_eq!(sizes, [(64, buft), (80, buft)], "two buffers with two tensors each");
        let placed = Placed { leaves, buffers, host_memory: None };
        for (i, n) in [8_u8, 8, 16, 4].into_iter().enumerate() {
            let values = vec![f32::from(n); n.into()];
            placed.set("test", &format!("t{i}"), &values).unwrap();
        }
        for (i, n) in [8_u8, 8, 16, 4].into_iter().enumerate() {
            let read = placed.tensor(&format!("t{i}")).unwrap().read::<f32>().unwrap();
            assert_eq!(read, vec![f32::from(n); n.into()], "t{i} overlaps no other tensor");
        }
        let more = place_group(buft, 8, &placed.leaves.tensors, Owner::State, &mut Vec::new());
        assert!(matches!(more, Err(Error::Shape { .. })), "{more:?}");
    }
}
