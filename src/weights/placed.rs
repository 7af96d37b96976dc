//! Named leaves with their own memory: the common part of weights and states.

use std::collections::HashMap;

use ggml_sys as sys;

use super::destination::LeafInfo;
use super::groups::{self, Groups};
use super::index::{Id, LeafIndex, LeafKey, Which};
use crate::buffer::{self, Buffer, BufferType};
use crate::context::Context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::transfer;

/// How out-of-memory errors name what the memory was for.
pub(super) const NAMES: &str = "a list of tensors";

/// The leaves of weights or a state, before they have memory.
#[derive(Default)]
pub(super) struct Leaves {
    ctx: Context,
    pub(super) tensors: Vec<TensorPtr>,
    names: HashMap<Box<str>, usize>,
    id: Id,
}

/// The leaves of weights or a state, with their memory.
///
/// # Invariants
///
/// Each tensor lies in one of `buffers` and its header in `ctx`. Neither field is written again, so both are read-only
/// until they are dropped, headers first.
pub(super) struct Placed {
    leaves: Leaves,
    buffers: Vec<Buffer>,
    /// The user's memory is declared after the buffers, so that it is dropped after the buffer that uses it.
    host_memory: Option<HostMemory>,
}

/// The user's memory with the buffers that wrap it, one for each device. Nothing may write to tensors in this memory.
struct HostMemory {
    buffers: Vec<*mut sys::ggml_backend_buffer>,
    _memory: Box<dyn AsRef<[u8]> + Send + Sync>,
}

// SAFETY: the pointers refer to headers in `ctx`, which moves with them.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the headers move with their pointers")]
unsafe impl Send for Leaves {}
// SAFETY: the pointers are only compared.
unsafe impl Send for HostMemory {}

impl Leaves {
    pub(super) fn add(&mut self, name: &str, dtype: DType, shape: Shape) -> Result<LeafIndex> {
        if self.names.contains_key(name) {
            return Err(Error::Duplicate { call: "WeightsBuilder::tensor", what: "tensor", name: name.into() });
        }
        let t = self.ctx.leaf("tensor", name, dtype, shape)?.ptr();
        let key = list::text(name, NAMES)?;
        self.names.try_reserve(1).map_err(|_| Error::no_memory(NAMES))?;
        list::push(&mut self.tensors, t, NAMES)?;
        let i = self.tensors.len() - 1;
        self.names.insert(key, i);
        Ok(LeafIndex { owner: self.id, i })
    }

    /// The description of each tensor, with its whole name (ggml cuts long ones), in the order in which the tensors
    /// were added.
    pub(super) fn infos(&self) -> Result<Vec<LeafInfo>> {
        let mut names = list::collect(&self.names, NAMES)?;
        names.sort_unstable_by_key(|(_, i)| **i);
        let mut infos = Vec::new();
        for ((name, _), t) in names.into_iter().zip(self.tensors.iter().copied()) {
            list::push(&mut infos, LeafInfo::new(name, t.dtype(), t.ne().into())?, NAMES)?;
        }
        Ok(infos)
    }

    /// Gives each tensor memory filled with zeros, in a buffer type of its own. The types are in the order in which the
    /// tensors were added.
    pub(super) fn place(self, owner: Owner, types: impl IntoIterator<Item = BufferType>) -> Result<Placed> {
        let mut groups = Groups::new();
        for (&t, buft) in self.tensors.iter().zip(types) {
            groups::add(&mut groups, buft, t)?;
        }
        let buffers = groups::place(groups, owner)?;
        Ok(Placed { leaves: self, buffers, host_memory: None })
    }

    /// Gives the tensors of weights memory. Some lie in the user's memory, zero-copy; the others get memory as in
    /// [`Leaves::place`].
    pub(super) fn place_over(
        self,
        memory: Box<dyn AsRef<[u8]> + Send + Sync>,
        spots: impl IntoIterator<Item = Spot>,
    ) -> Result<Placed> {
        let bytes = (*memory).as_ref();
        let (mut mapped, mut groups) = (Groups::new(), Groups::new());
        for (&t, spot) in self.tensors.iter().zip(spots) {
            match spot {
                Spot::Over(device, offset) => groups::add(&mut mapped, device, (t, offset))?,
                Spot::In(buft) => groups::add(&mut groups, buft, t)?,
            }
        }
        let mut buffers = groups::place(groups, Owner::Weights)?;
        let mut over = Vec::new();
        for (device, tensors) in mapped {
            let largest = tensors.iter().filter_map(|(t, _)| t.span()).max().unwrap_or(0);
            // SAFETY: the box with the user's memory is kept beside the buffer, and dropped after it (field order). The
            // box is never borrowed mutably, and nothing here writes to tensors in host memory (Placed::writable): the
            // bytes stay as they are.
            let mut buffer = unsafe { Buffer::from_host_memory(device, bytes, largest) }?;
            buffer.mark_as_weights();
            for (t, offset) in tensors {
                buffer.place(t, offset)?;
                t.set_owner(Owner::Weights);
            }
            list::push(&mut over, buffer.as_ptr(), NAMES)?;
            list::push(&mut buffers, buffer, NAMES)?;
        }
        let host_memory = Some(HostMemory { buffers: over, _memory: memory });
        Ok(Placed { leaves: self, buffers, host_memory })
    }
}

/// Where a tensor of weights lies.
#[derive(Debug)]
pub(crate) enum Spot {
    /// The tensor lies at a byte offset in the user's memory, which the device uses.
    Over(Device, usize),
    /// The tensor lies in memory of its own, of this buffer type.
    In(BufferType),
}

impl Placed {
    pub(super) fn find(&self, call: &'static str, leaf: Which<'_>) -> Result<TensorPtr> {
        match leaf {
            Which::Index(index) => self.at(index).map(Tensor::ptr).ok_or_else(|| foreign(call)),
            Which::Name(name) => self.tensor(name).map(Tensor::ptr),
        }
    }

    #[cold]
    fn no_such(&self, name: &str) -> Error {
        list::no_such(name, self.leaves.names.keys().map(AsRef::as_ref))
    }

    pub(super) fn index(&self, name: &str) -> Result<LeafIndex> {
        let i = self.leaves.names.get(name).copied().ok_or_else(|| self.no_such(name))?;
        Ok(LeafIndex { owner: self.leaves.id, i })
    }

    /// The tensor at an index, unless the index belongs to other weights or another state.
    #[inline]
    pub(super) fn at(&self, index: LeafIndex) -> Option<Tensor<'_>> {
        let ptr = *self.leaves.tensors.get(index.i).filter(|_| index.owner == self.leaves.id)?;
        // SAFETY: header and memory live as long as `self`, which the result borrows.
        Some(unsafe { Tensor::new(ptr) })
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        let found = self.leaves.names.get(name).and_then(|&i| self.leaves.tensors.get(i));
        let ptr = *found.ok_or_else(|| self.no_such(name))?;
        // SAFETY: header and memory live as long as `self`, which the result borrows.
        Ok(unsafe { Tensor::new(ptr) })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.leaves.tensors.iter().map(|&ptr| {
            // SAFETY: header and memory live as long as `self`, which the result borrows.
            unsafe { Tensor::new(ptr) }
        })
    }

    /// A tensor that may be overwritten; an error for tensors in the user's memory.
    pub(super) fn writable(&self, call: &'static str, leaf: Which<'_>) -> Result<TensorPtr> {
        let t = self.find(call, leaf)?;
        if self.host_memory.as_ref().is_some_and(|memory| memory.buffers.contains(&t.buffer())) {
            return Err(Error::Frozen { call, tensor: t.info() });
        }
        Ok(t)
    }

    /// Lets `f` write to a tensor, if the tensor may be overwritten.
    pub(super) fn write(
        &self,
        call: &'static str,
        leaf: impl LeafKey,
        f: impl FnOnce(&'static str, TensorPtr) -> Result<()>,
    ) -> Result<()> {
        f(call, self.writable(call, leaf.which())?)
    }

    /// Lets `f` read a tensor.
    pub(super) fn read<R>(
        &self,
        call: &'static str,
        leaf: impl LeafKey,
        f: impl FnOnce(&'static str, TensorPtr) -> Result<R>,
    ) -> Result<R> {
        f(call, self.find(call, leaf.which())?)
    }

    pub(super) fn clear_bytes(&self, value: u8) -> Result<()> {
        let mut tensors = self.leaves.tensors.iter().copied();
        if value != 0 && tensors.clone().any(buffer::fills_words) {
            // On Vulkan, `ggml_backend_buffer_clear` sets only one byte of every four.
            return tensors.try_for_each(|t| transfer::fill("State::clear_bytes", t, value));
        }
        self.buffers.iter().try_for_each(|b| b.clear(value))
    }

    pub(super) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    pub(super) fn len(&self) -> usize {
        self.leaves.tensors.len()
    }
}

/// Checks that a tensor can be copied to others: it is one of weights or a state, and no view. Outside of an
/// allocation, a view has no buffer, and C asserts that there is one.
pub(super) fn whole(call: &'static str, t: Tensor<'_>) -> Result<TensorPtr> {
    if t.ptr().owner() == Owner::Graph || t.is_view() {
        return Err(Error::NotPart { call, tensor: t.info(), whole: "the tensors of any weights or state" });
    }
    Ok(t.ptr())
}

/// The error for an index that belongs to other weights or another state.
#[cold]
fn foreign(call: &'static str) -> Error {
    let why = "it is of other weights or another state; take it from their builder, or from their own `index`";
    Error::param(call, "leaf", "an index", why)
}

#[cfg(test)]
mod tests {
    use super::super::groups::place_group;
    use super::*;

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
            placed.write("test", &format!("t{i}"), |call, t| transfer::write(call, t, &values)).unwrap();
        }
        for (i, n) in [8_u8, 8, 16, 4].into_iter().enumerate() {
            let read = placed.tensor(&format!("t{i}")).unwrap().read::<f32>().unwrap();
            assert_eq!(read, vec![f32::from(n); n.into()], "t{i} overlaps no other tensor");
        }
    }
}
