//! The tensors of a graph, in the order in which C computes them, with what is known of each.
//!
//! Rules and allocators judge a graph by these lists. They hold headers, no handles.

mod store;
mod table;

use std::ops::Deref;

use crate::error::Result;
use crate::header::{Owner, TensorPtr};
use table::Table;

pub(crate) use store::{Lists, Store, StoreGuard, StorePool, no_nodes};

/// A tensor of a graph, with what allocation needs to know of it.
pub(crate) struct Entry {
    pub(crate) ptr: TensorPtr,
    /// The exclusive upper bound of the indices if the entry is an input that holds indices, else `i64::MAX`.
    pub(crate) below: i64,
    /// For an input with indices of rows to write to: whether rows of it need distinct values ([`Entries::distinct`]).
    pub(crate) distinct: bool,
    /// The start of the entry's sources in `Entries::srcs`.
    first: u32,
    /// The index of the entry whose memory this entry shares: its own index unless it is a view.
    pub(crate) root: u32,
    /// A bit for each of the operation's source slots in use.
    pub(crate) mask: u16,
    pub(crate) kind: Kind,
    /// The kind of the entry's root.
    pub(crate) root_kind: Kind,
    /// Whether the entry's value is readable after the computation.
    pub(crate) kept: bool,
}

/// An entry's role in an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An input, which the user sets before computing.
    Input,
    /// A leaf of weights or a state, which has memory already.
    Placed(Owner),
    /// The result of an operation.
    Node,
}

impl Entry {
    /// Whether the graph's allocator gives the entry memory.
    #[inline]
    pub(crate) fn is_allocated_by_graph(&self) -> bool {
        !matches!(self.kind, Kind::Placed(_))
    }

    /// Whether the entry is a view of weights or a state.
    #[inline]
    pub(crate) fn views_placed(&self) -> bool {
        self.is_allocated_by_graph() && matches!(self.root_kind, Kind::Placed(_))
    }
}

/// The entries of a graph, with their sources.
#[derive(Default)]
pub(crate) struct Entries {
    list: Vec<Entry>,
    /// The entry indices of all sources, concatenated. `Entry::first` and `mask` say which belong to an entry.
    srcs: Vec<u32>,
    table: Table,
    /// The custom operations, whose kernels are Rust closures.
    closures: Vec<TensorPtr>,
    /// Inputs of row indices, or views of them, of which each row must have distinct values.
    distinct: Vec<TensorPtr>,
}

impl Deref for Entries {
    type Target = [Entry];

    #[inline]
    fn deref(&self) -> &[Entry] {
        &self.list
    }
}

impl Entries {
    /// The index of `t` among the entries.
    #[inline]
    pub(crate) fn position(&self, t: TensorPtr) -> Option<usize> {
        self.table.entry_of(t).map(|i| i as usize)
    }

    /// The sources of an entry as built, with their slots: the scheduler replaces some by copies on other devices.
    #[inline]
    pub(crate) fn srcs(&self, e: &Entry) -> impl Iterator<Item = (usize, TensorPtr)> {
        self.src_entries(e).map(|(i, src)| (i, src.ptr))
    }

    /// The entries that are sources of an entry, with their slots.
    #[inline]
    pub(crate) fn src_entries(&self, e: &Entry) -> impl Iterator<Item = (usize, &Entry)> {
        let mut left = e.mask;
        self.srcs.get(e.first as usize..).unwrap_or_default().iter().map_while(move |&src| {
            let i = left.trailing_zeros();
            left = left.checked_sub(1)? & left;
            Some((i as usize, self.get(src as usize)?))
        })
    }

    /// The entry indices of an entry's sources.
    pub(crate) fn src_indices(&self, e: &Entry) -> impl Iterator<Item = usize> {
        let srcs = self.srcs.get(e.first as usize..).unwrap_or_default();
        srcs.iter().take(e.mask.count_ones() as usize).map(|&src| src as usize)
    }

    /// The entry indices of the sources of all entries, concatenated.
    pub(crate) fn all_srcs(&self) -> &[u32] {
        &self.srcs
    }

    /// The custom operations, whose kernels are Rust closures.
    pub(crate) fn closures(&self) -> &[TensorPtr] {
        &self.closures
    }

    /// The views of an input, or the input itself, of which each row must have distinct values.
    pub(crate) fn distinct(&self, input: TensorPtr) -> impl Iterator<Item = TensorPtr> {
        self.distinct.iter().copied().filter(move |rows| rows.root() == input)
    }

    fn entry_mut(&mut self, t: TensorPtr) -> Option<&mut Entry> {
        self.table.entry_of(t).and_then(|i| self.list.get_mut(i as usize))
    }

    /// Records that the values of `indices` must be below `n`.
    pub(crate) fn bound(&mut self, indices: TensorPtr, n: i64) {
        if let Some(e) = self.entry_mut(indices) {
            e.below = e.below.min(n);
        }
    }

    /// Records that each row of `rows` must have distinct values.
    pub(crate) fn demand_distinct(&mut self, rows: TensorPtr) -> Result<()> {
        store::push(&mut self.distinct, rows)?;
        if let Some(e) = self.entry_mut(rows.root()) {
            e.distinct = true;
        }
        Ok(())
    }
}
