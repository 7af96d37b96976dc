//! The hash table of a graph's tensors, shared with C.

use ggml_sys as sys;

use crate::error::{Error, Result};
use crate::header::TensorPtr;

/// The minimum number of slots.
const LEAST: usize = 64;

/// The entry index of a tensor whose visit has not ended: it has none yet.
const NONE: u32 = u32::MAX;

/// The index of a tensor's slot in the hash table.
pub(super) type Slot = u32;

/// The table is full: it must be enlarged and refilled.
pub(super) struct Full;

/// A hash table of tensors by their addresses, with open addressing, at most half full. The number of slots is a power
/// of two: C takes a sixteenth of an address modulo this number. Tensors of a pool are an odd multiple of 16 bytes
/// apart.
///
/// # Invariants
///
/// All four lists have at least `slots` items, or bits in the case of `used`.
#[derive(Default)]
pub(super) struct Table {
    slots: usize,
    len: usize,
    keys: Vec<*mut sys::ggml_tensor>,
    /// A bit for each occupied slot.
    used: Vec<u32>,
    /// How often each tensor is a source.
    uses: Vec<i32>,
    /// The entry index of each tensor.
    entries: Vec<u32>,
}

/// Makes a list at least `len` items long.
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
    /// Empties the table, and makes room for this many tensors.
    pub(super) fn clear(&mut self, tensors: usize) -> Result<()> {
        let slots = tensors.checked_mul(2).and_then(|n| n.checked_add(2)?.checked_next_power_of_two());
        let slots = slots.ok_or_else(no_memory)?.max(LEAST);
        self.slots = 0; // keeps the invariant until all lists are long enough
        self.len = 0;
        if self.entries.len() < slots {
            // The list `entries` grows last, so its length tells whether all lists are long enough.
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

    /// The maximum number of tensors for the table's size.
    pub(super) fn room(&self) -> usize {
        self.slots / 2
    }

    /// The slot of a tensor, or else a free slot for it. At least half of the slots are free.
    #[inline]
    fn find(&self, t: *mut sys::ggml_tensor) -> usize {
        let keys = &self.keys[..self.slots];
        let mut i = (t.addr() >> 4) & (self.slots - 1);
        while !keys[i].is_null() && keys[i] != t {
            i = (i + 1) & (self.slots - 1);
        }
        i
    }

    /// The slot of a tensor, which is inserted if need be, and whether this call inserted it.
    #[inline]
    pub(super) fn enter(&mut self, t: TensorPtr) -> std::result::Result<(Slot, bool), Full> {
        let i = self.find(t.as_ptr());
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

    /// Counts one use of a tensor as a source.
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

    /// The entry index of a tensor whose visit has ended.
    #[inline]
    pub(super) fn entry_of(&self, t: TensorPtr) -> Option<u32> {
        self.entry_at(t.as_ptr())
    }

    /// The entry index of a tensor, as [`Table::entry_of`] returns it, by a pointer that is only compared.
    #[inline]
    pub(super) fn entry_at(&self, t: *mut sys::ggml_tensor) -> Option<u32> {
        if self.slots == 0 {
            return None;
        }
        let i = self.find(t);
        (!self.keys[i].is_null() && self.entries[i] != NONE).then(|| self.entries[i])
    }

    /// Puts the pointers to the table's lists into C's graph.
    pub(super) fn lend(&mut self, graph: &mut sys::ggml_sys_cgraph) {
        graph.use_counts = self.uses.as_mut_ptr();
        graph.hash_size = self.slots;
        graph.hash_used = self.used.as_mut_ptr();
        graph.hash_keys = self.keys.as_mut_ptr();
    }
}
