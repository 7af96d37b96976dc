//! The table of a graph's tensors, which C looks into as well.

use ggml_sys as sys;

use crate::error::{Error, Result};
use crate::header::TensorPtr;

/// The fewest slots a table has.
const LEAST: usize = 64;

/// The entry of a tensor whose visit has not ended.
const NONE: u32 = u32::MAX;

/// Where a tensor is in the table, or would be.
pub(super) type Slot = u32;

/// There is no room: the table must be made larger, and filled anew.
pub(super) struct Full;

/// Tensors by address, open and half empty at least. Slots are a power of two: C takes an address modulo their number, which
/// for this is its low bits, and tensors of a pool lie an odd multiple of 16 bytes apart.
///
/// # Invariants
///
/// All four lists have at least `slots` items, and a bit for each slot.
#[derive(Default)]
pub(super) struct Table {
    slots: usize,
    len: usize,
    keys: Vec<*mut sys::ggml_tensor>,
    /// A bit for each slot that has a key.
    used: Vec<u32>,
    /// How often each tensor is a source.
    uses: Vec<i32>,
    /// The entry of each tensor.
    entries: Vec<u32>,
}

/// Makes a list at least so long.
fn grow<T: Clone>(list: &mut Vec<T>, len: usize, value: T) -> Result<()> {
    list.try_reserve_exact(len.saturating_sub(list.len())).map_err(|_| no_memory())?;
    list.resize(len.max(list.len()), value);
    Ok(())
}

#[cold]
fn no_memory() -> Error {
    Error::no_memory("the table of a graph's tensors")
}

#[expect(clippy::indexing_slicing, reason = "slots come from `find`, which masks them to lie inside the lists")]
impl Table {
    /// Empties the table, for some `tensors`.
    pub(super) fn clear(&mut self, tensors: usize) -> Result<()> {
        let slots = tensors.checked_mul(2).and_then(|n| n.checked_add(2)?.checked_next_power_of_two());
        let slots = slots.ok_or_else(no_memory)?.max(LEAST);
        self.slots = 0; // until all lists are long enough
        self.len = 0;
        if self.entries.len() < slots {
            // The last of them: where it is long enough, so are the others.
            grow(&mut self.keys, slots, std::ptr::null_mut())?;
            grow(&mut self.used, slots / 32, 0)?;
            grow(&mut self.uses, slots, 0)?;
            grow(&mut self.entries, slots, NONE)?;
        }
        self.slots = slots;
        self.keys[..self.slots].fill(std::ptr::null_mut());
        self.used[..self.slots / 32].fill(0);
        Ok(())
    }

    /// How many tensors fit.
    pub(super) fn room(&self) -> usize {
        self.slots / 2
    }

    /// The slot of a tensor, or the free one where it would be. There always is a free one.
    #[inline]
    fn find(&self, t: TensorPtr) -> usize {
        let keys = &self.keys[..self.slots];
        let mut i = (t.as_ptr().addr() >> 4) & (self.slots - 1);
        while !keys[i].is_null() && keys[i] != t.as_ptr() {
            i = (i + 1) & (self.slots - 1);
        }
        i
    }

    /// The slot of a tensor, and whether it is new.
    #[inline]
    pub(super) fn enter(&mut self, t: TensorPtr) -> std::result::Result<(Slot, bool), Full> {
        let i = self.find(t);
        let new = self.keys[i].is_null();
        if new {
            if self.len >= self.room() {
                return Err(Full);
            }
            self.len += 1;
            self.keys[i] = t.as_ptr();
            self.used[i / 32] |= 1 << (i % 32);
            self.uses[i] = 0;
            self.entries[i] = NONE;
        }
        Slot::try_from(i).map(|slot| (slot, new)).map_err(|_| Full)
    }

    /// Counts one more use.
    #[inline]
    pub(super) fn uses(&mut self, slot: Slot) {
        self.uses[slot as usize] += 1;
    }

    #[inline]
    pub(super) fn set_entry(&mut self, slot: Slot, entry: u32) {
        self.entries[slot as usize] = entry;
    }

    #[inline]
    pub(super) fn entry(&self, slot: Slot) -> u32 {
        self.entries[slot as usize]
    }

    /// The entry of a tensor that is there, with its visit ended.
    #[inline]
    pub(super) fn entry_of(&self, t: TensorPtr) -> Option<u32> {
        if self.slots == 0 {
            return None;
        }
        let i = self.find(t);
        (!self.keys[i].is_null() && self.entries[i] != NONE).then(|| self.entries[i])
    }

    /// Shows C the table.
    pub(super) fn lend(&mut self, graph: &mut sys::ggml_sys_cgraph) {
        graph.use_counts = self.uses.as_mut_ptr();
        graph.hash_size = self.slots;
        graph.hash_used = self.used.as_mut_ptr();
        graph.hash_keys = self.keys.as_mut_ptr();
    }
}
