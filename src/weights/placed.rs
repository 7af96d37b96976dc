//! Named leaves with memory of their own: what weights and states have in common.

use std::collections::HashMap;

use super::packed;
use crate::buffer::{Buffer, BufferType};
use crate::context::Context;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::pieces::{self, Pieces};
use crate::tensor::ptr::{Owner, TensorPtr};
use crate::tensor::transfer;

/// Leaves that have no memory yet.
#[derive(Default)]
pub(super) struct Leaves {
    ctx: Context,
    tensors: Vec<TensorPtr>,
    names: HashMap<Box<str>, usize>,
}

/// Leaves with memory.
///
/// # Invariants
///
/// Each tensor lies in one of `buffers` and its header in `ctx`; neither is touched again, so both are read-only until
/// they are dropped, headers first.
pub(super) struct Placed {
    leaves: Leaves,
    buffers: Vec<Buffer>,
    /// Dropped after the buffer over it.
    over: Option<Over>,
}

/// Memory of the user's that a buffer lies over; nothing may write to the tensors there.
struct Over {
    tensors: Vec<TensorPtr>,
    _memory: Box<dyn AsRef<[u8]> + Send + Sync>,
}

// SAFETY: the pointers are to headers in `ctx`, which moves with them.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the headers move with their pointers")]
unsafe impl Send for Leaves {}
// SAFETY: the pointers are to headers in the `ctx` beside, which moves with them.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the headers move with their pointers")]
unsafe impl Send for Over {}

impl Leaves {
    pub(super) fn add(&mut self, name: &str, dtype: DType, shape: Shape) -> Result<()> {
        if self.names.contains_key(name) {
            return Err(Error::Duplicate { call: "WeightsBuilder::tensor", what: "tensor", name: name.into() });
        }
        let t = self.ctx.leaf("tensor", name, dtype, shape)?.ptr();
        self.names.insert(name.into(), self.tensors.len());
        self.tensors.push(t);
        Ok(())
    }

    /// The tensors with their whole names (ggml cuts long ones), in the order in which they were added.
    fn named(&self) -> impl Iterator<Item = (&str, TensorPtr)> {
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by_key(|(_, i)| **i);
        names.into_iter().map(|(name, _)| &**name).zip(self.tensors.iter().copied())
    }

    /// Gives each tensor memory of the type that `choose` names for it, all of it zero.
    pub(super) fn place(self, owner: Owner, mut choose: impl FnMut(&str) -> BufferType) -> Result<Placed> {
        let mut groups = Groups::default();
        for (name, t) in self.named() {
            groups.add(choose(name), t);
        }
        let buffers = groups.place(owner)?;
        Ok(Placed { leaves: self, buffers, over: None })
    }

    /// Lets each tensor lie in `memory`, from the byte that `choose` names for it, on a device that can use it as it is, or
    /// gives it memory of its own of the type that `choose` names instead.
    pub(super) fn place_over(
        self,
        device: Device,
        memory: Box<dyn AsRef<[u8]> + Send + Sync>,
        mut choose: impl FnMut(&str) -> Result<Result<usize, BufferType>>,
    ) -> Result<Placed> {
        let (mut over, mut groups) = (Vec::new(), Groups::default());
        for (name, t) in self.named() {
            match choose(name)? {
                Ok(offset) => over.push((t, offset)),
                Err(buft) => groups.add(buft, t),
            }
        }
        let mut buffers = groups.place(Owner::Weights)?;
        if !over.is_empty() {
            let largest = over.iter().filter_map(|(t, _)| t.span()).max().unwrap_or(0);
            // SAFETY: the box is moved next to the buffer below, and dropped after it. It is never lent as mutable again, so
            // the bytes stay where they are and as they are: nothing here writes to tensors over memory (Placed::writable).
            let mut buffer = unsafe { Buffer::over(device, (*memory).as_ref(), largest) }?;
            buffer.mark_as_weights();
            for &(t, offset) in &over {
                buffer.place(t, offset)?;
                t.set_owner(Owner::Weights);
            }
            buffers.push(buffer);
        }
        let over = Some(Over { tensors: over.into_iter().map(|(t, _)| t).collect(), _memory: memory });
        Ok(Placed { leaves: self, buffers, over })
    }
}

/// Tensors by the type of their memory. Types are few, so a list does.
#[derive(Default)]
struct Groups(Vec<(BufferType, Vec<TensorPtr>)>);

impl Groups {
    fn add(&mut self, buft: BufferType, t: TensorPtr) {
        match self.0.iter_mut().find(|(b, _)| *b == buft) {
            Some((_, tensors)) => tensors.push(t),
            None => self.0.push((buft, vec![t])),
        }
    }

    /// Gives all tensors memory, those of one type in shared buffers.
    fn place(self, owner: Owner) -> Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        for (buft, tensors) in self.0 {
            place_group(buft, &tensors, owner, &mut buffers)?;
        }
        Ok(buffers)
    }
}

/// Lays tensors out one after the other, in as many buffers as the type's largest size asks for.
fn place_group(buft: BufferType, tensors: &[TensorPtr], owner: Owner, buffers: &mut Vec<Buffer>) -> Result<()> {
    let owner = packed::owner(buft, tensors, owner)?;
    let (alignment, max) = (buft.alignment()?, buft.max_size()?);
    let mut chunk: Vec<(TensorPtr, usize)> = Vec::new();
    let mut end = 0;
    for &t in tensors {
        let size = buft.alloc_size(t)?;
        let next = end_of(end, alignment, size).filter(|&n| n <= max);
        if next.is_none() && !chunk.is_empty() {
            buffers.push(fill(buft, &chunk, end, owner)?);
            chunk.clear();
            end = 0;
        }
        let Some(next) = end_of(end, alignment, size).filter(|&n| n <= max) else {
            return Err(Error::Shape {
                op: "WeightsBuilder::place",
                operands: [t.info()].into(),
                expected: format!(
                    "a tensor in memory of type {} may have {max} bytes, this one needs {size}",
                    buft.name()
                )
                .into(),
            });
        };
        chunk.push((t, next - size));
        end = next;
    }
    if !chunk.is_empty() {
        buffers.push(fill(buft, &chunk, end, owner)?);
    }
    Ok(())
}

/// The end of `size` bytes that begin at the first aligned place from `end` on.
fn end_of(end: usize, alignment: usize, size: usize) -> Option<usize> {
    end.checked_next_multiple_of(alignment)?.checked_add(size)
}

fn fill(buft: BufferType, chunk: &[(TensorPtr, usize)], size: usize, owner: Owner) -> Result<Buffer> {
    let mut buffer = Buffer::zeroed(buft, size)?;
    if owner != Owner::State {
        buffer.mark_as_weights();
    }
    for &(t, offset) in chunk {
        buffer.place(t, offset)?;
        t.set_owner(owner);
    }
    Ok(buffer)
}

impl Placed {
    pub(super) fn find(&self, name: &str) -> Result<TensorPtr> {
        let found = self.leaves.names.get(name).and_then(|&i| self.leaves.tensors.get(i));
        found.copied().ok_or_else(|| {
            let mut available: Box<[_]> = self.leaves.names.keys().cloned().collect();
            available.sort();
            Error::NoSuch { what: "tensor", name: name.into(), available }
        })
    }

    pub(super) fn get(&self, name: &str) -> Result<Tensor<'_>> {
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

    /// A tensor that may be written.
    pub(super) fn writable(&self, call: &'static str, name: &str) -> Result<TensorPtr> {
        let t = self.find(name)?;
        if self.over.as_ref().is_some_and(|over| over.tensors.contains(&t)) {
            return Err(Error::Frozen { op: call, tensor: t.info() });
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

    pub(super) fn fill(&self, call: &'static str, name: &str, value: u8) -> Result<()> {
        transfer::fill(call, self.writable(call, name)?, value)
    }

    pub(super) fn copy(&self, call: &'static str, name: &str, from: Tensor<'_>) -> Result<()> {
        let to = self.writable(call, name)?;
        // Views have no buffer, which C asserts.
        if from.ptr().owner() == Owner::Graph || from.is_view() {
            return Err(Error::NotPart { call, tensor: from.info(), whole: "the tensors of any weights or state" });
        }
        transfer::copy(call, from.ptr(), to)
    }

    pub(super) fn clear(&self, value: u8) -> Result<()> {
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
