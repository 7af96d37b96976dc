//! Whether the plan of the last graph fits the next one.
//!
//! ggml compares only node and leaf counts and tensor sizes, so that a graph of another topology could get a plan in
//! which live tensors overlap (H22, H23). This file compares everything that a plan depends on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::placement::Placement;
use super::views::Claims;
use crate::buffer::{self, BufferType};
use crate::device::meta;
use crate::entries::{Entries, Entry, Kind, Lists};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::{TensorFingerprint, TensorPtr};
use crate::list;
use crate::rules::meta as meta_rules;

/// The properties of one tensor that a plan depends on.
struct Key {
    fingerprint: TensorFingerprint,
    /// A bit for each source that the graph allocates and that has the entry's type and layout: ggml may compute the
    /// entry in such a source's memory.
    alike: u16,
    /// A view's offset into memory that the graph allocates. Offsets into weights and state are ignored: they change
    /// with every decode step. No plan-time check may depend on them.
    view_offs: usize,
    root: u32,
    mask: u16,
    kind: Kind,
    /// The buffer type of a placed leaf. Together with its owner it decides where operations run. The buffer is not
    /// part of the key; another one may reuse its address.
    buffer_type: Option<BufferType>,
}

impl Key {
    fn of(entries: &Entries, e: &Entry) -> Self {
        Self {
            fingerprint: e.ptr.fingerprint(),
            alike: alike(entries, e),
            view_offs: e.ptr.view_offs(),
            root: e.root,
            mask: e.mask,
            kind: e.kind,
            buffer_type: buffer_type(e),
        }
    }
}

/// The topology of the last planned graph, and the last placement with this plan.
#[derive(Default)]
pub(crate) struct Plan {
    /// Whether C has this plan.
    valid: bool,
    keys: Vec<Key>,
    /// The entries in whose headers the graph that was compared last differs.
    differ: Vec<usize>,
    /// The keys that [`Plan::adopt`] replaced: with these, the graph before the last.
    previous: Vec<(usize, Key)>,
    /// Source entry indices of all entries, concatenated.
    srcs: Vec<u32>,
    /// The last placement.
    placement: Option<Arc<Placement>>,
    /// Whether the next graph with these tensors may reuse the placement without asking ggml's allocator.
    reusable: bool,
    /// The addresses of that graph's node and leaf lists.
    lists: Option<Lists>,
    plans: usize,
    /// The weights and states on a meta device: their addresses and split states.
    divided: Vec<(usize, meta::State)>,
    id: u64,
    /// How many tensors this plan has placed on a meta device, over all allocations.
    used: usize,
}

/// How a graph compares with the planned one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It needs the same plan.
    Same,
    /// It differs in nothing but sizes, offsets and parameters. Tensors live equally long and share memory in the same
    /// places, so ggml may decide by their sizes alone whether its plan has room for them.
    ///
    /// Holds the entries whose headers or whose sources' headers differ: rules must judge them again. None if it equals
    /// the graph before, as where two take turns.
    Sizes(Vec<usize>),
    /// It needs a plan of its own.
    Other,
}

impl Plan {
    /// Compares a graph with the planned one. `by_size`: whether C may decide by sizes if nothing else differs.
    pub(crate) fn fit(&mut self, graph: &Graph<'_>, by_size: bool) -> Result<Fit> {
        let entries = graph.entries();
        let fits = self.valid
            && self.used <= meta_rules::most_used(entries.len())
            && entries.len() == self.keys.len()
            && entries.all_srcs() == self.srcs
            && meta_rules::places(entries) == self.divided;
        if !fits {
            return Ok(Fit::Other);
        }
        self.differ.clear();
        for (i, (e, key)) in entries.iter().zip(&self.keys).enumerate() {
            if is_same(i, e, key) {
                continue;
            }
            if !by_size || !differs_in_sizes(entries, i, e, key) {
                return Ok(Fit::Other);
            }
            list::push(&mut self.differ, i, "the plan of a graph")?;
        }
        if self.differ.is_empty() {
            return Ok(Fit::Same);
        }
        let is_previous = self.differ.len() == self.previous.len()
            && self
                .differ
                .iter()
                .zip(&self.previous)
                .all(|(&i, (previous, key))| i == *previous && entries.get(i).is_some_and(|e| is_same(i, e, key)));
        if is_previous {
            return Ok(Fit::Sizes(Vec::new()));
        }
        let more = self.differ.len().saturating_sub(self.previous.len());
        self.previous.try_reserve(more).map_err(|_| Error::no_memory("the plan of a graph"))?;
        let affected = self.affected(entries)?;
        let pair = |&i: &usize| entries.get(i).zip(self.keys.get(i));
        Ok(if affected.iter().filter_map(pair).all(|(e, key)| alike(entries, e) == key.alike) {
            Fit::Sizes(affected)
        } else {
            Fit::Other
        })
    }

    /// The entries that differ, and those with a source that differs.
    fn affected(&self, entries: &Entries) -> Result<Vec<usize>> {
        let mut differs = list::collect(entries.iter().map(|_| false), "the plan of a graph")?;
        self.differ.iter().filter_map(|&i| differs.get_mut(i).map(|d| *d = true)).for_each(drop);
        let is = |i: usize| differs.get(i).is_some_and(|&d| d);
        let affected = entries.iter().enumerate().filter(|(i, e)| is(*i) || entries.src_indices(e).any(is));
        list::collect(affected.map(|(i, _)| i), "the plan of a graph")
    }

    /// Suspends the plan while C changes its own, until [`Plan::adopt`].
    pub(crate) fn suspend(&mut self) {
        self.valid = false;
        self.forget();
    }

    /// Records that C's plan now fits this graph, which was compared last and differs in sizes.
    pub(crate) fn adopt(&mut self, graph: &Graph<'_>) {
        self.previous.clear();
        for &i in &self.differ {
            if let (Some(e), Some(key)) = (graph.entries().get(i), self.keys.get_mut(i)) {
                // There is room for them (`fit`).
                self.previous.push((i, std::mem::replace(key, Key::of(graph.entries(), e))));
            }
        }
        self.count_plan();
    }

    fn count_plan(&mut self) {
        self.valid = true;
        self.plans += 1;
        self.id = next_id();
        self.used = 0;
    }

    /// Records the graph as planned.
    pub(crate) fn set(&mut self, graph: &Graph<'_>) -> Result<()> {
        self.clear();
        let no_memory = |_| Error::no_memory("the plan of a graph");
        self.srcs.try_reserve(graph.entries().all_srcs().len()).map_err(no_memory)?;
        self.keys.try_reserve(graph.entries().len()).map_err(no_memory)?;
        self.divided = meta_rules::places(graph.entries());
        self.srcs.extend_from_slice(graph.entries().all_srcs());
        self.keys.extend(graph.entries().iter().map(|e| Key::of(graph.entries(), e)));
        self.count_plan();
        Ok(())
    }

    /// Drops the plan: the next graph is planned anew.
    pub(crate) fn clear(&mut self) {
        self.valid = false;
        self.previous.clear();
        self.keys.clear();
        self.srcs.clear();
        self.forget();
    }

    /// Records the placement that C has just made. `reusable`: whether the next graph may use it without another
    /// allocation; `claims`: see [`Placement`].
    pub(crate) fn record(
        &mut self,
        graph: &Graph<'_>,
        reusable: bool,
        claims: Option<Claims>,
    ) -> Result<Arc<Placement>> {
        self.forget();
        // A leaked allocation may still hold the old one. Don't change it then.
        let mut placement = self.placement.take().filter(|p| Arc::strong_count(p) == 1).unwrap_or_default();
        if let Some(placement) = Arc::get_mut(&mut placement) {
            placement.record(graph, claims)?;
        }
        self.reusable = reusable && placement.is_plain(graph);
        self.lists = Some(graph.lists());
        self.placement = Some(Arc::clone(&placement));
        Ok(placement)
    }

    /// Whether the last placement may be reused.
    pub(crate) fn is_recorded(&self) -> bool {
        self.reusable
    }

    /// Drops the last placement: ggml allocates the next graph.
    pub(crate) fn forget(&mut self) {
        self.reusable = false;
    }

    /// The last placement, if the graph has the same tensors in the same node and leaf lists: the scheduler still refers
    /// to those lists, which may hold another graph by now or be freed. A decoder that resets its context and builds
    /// the same graph gets the same tensors and lists again.
    pub(crate) fn reuse(&self, graph: &Graph<'_>) -> Option<Arc<Placement>> {
        let placement = self.placement.as_ref().filter(|_| self.reusable && self.lists == Some(graph.lists()));
        placement.filter(|p| p.is_of(graph)).cloned()
    }

    /// Counts an allocation on a meta device: C keeps some kilobytes for each tensor at each address, so a plan is
    /// renewed after too many.
    pub(crate) fn count(&mut self, graph: &Graph<'_>) {
        self.used += graph.entries().len();
    }

    /// The plan's unique id.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// How many plans were made.
    pub(crate) fn plans(&self) -> usize {
        self.plans
    }
}

/// A plan id that was never used before.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[inline]
fn is_same(i: usize, e: &Entry, key: &Key) -> bool {
    let is_view = e.root as usize != i;
    let wanders = e.views_placed();
    // The parameters of a view of placed memory are its offset, those of a custom operation an address: ignored.
    let params = !(wanders && e.ptr.is_view_at_offset() || TensorPtr::is_custom(e.ptr));
    (e.root, e.mask, e.kind) == (key.root, key.mask, key.kind)
        && e.ptr.is_like(&key.fingerprint, params)
        && (!is_view || wanders || e.ptr.view_offs() == key.view_offs)
        && buffer_type(e) == key.buffer_type
}

/// Whether ggml's allocator would make the same plan for the entry, except for sizes.
fn differs_in_sizes(entries: &Entries, i: usize, e: &Entry, key: &Key) -> bool {
    // C compares the sizes of nodes and of their sources, so a leaf that no node uses must keep its size.
    let compared = || e.kind != Kind::Input || entries.all_srcs().iter().any(|&src| src as usize == i);
    (e.root, e.mask, e.kind) == (key.root, key.mask, key.kind)
        && e.ptr.is_same_op(&key.fingerprint)
        && buffer_type(e) == key.buffer_type
        && (e.ptr.is_like(&key.fingerprint, false) || compared())
}

/// A bit for each source that the graph allocates and that has the type and layout of the entry.
fn alike(entries: &Entries, e: &Entry) -> u16 {
    let layout = e.ptr.layout();
    let is_alike = |src: &Entry| src.is_allocated_by_graph() && !src.views_placed() && src.ptr.layout() == layout;
    entries.src_entries(e).filter(|(_, src)| is_alike(src)).fold(0, |mask, (slot, _)| mask | 1 << slot)
}

/// The buffer type of a placed leaf.
#[inline]
fn buffer_type(e: &Entry) -> Option<BufferType> {
    if e.is_allocated_by_graph() { None } else { buffer::type_of(e.ptr) }
}
