//! Whether the plan of the last graph fits the next one.
//!
//! ggml compares only node and leaf counts and tensor sizes, so that a graph of another topology could get a plan in
//! which live tensors overlap (H22, H23). This file compares everything that a plan depends on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::placement::Placement;
use super::views::Claims;
use crate::buffer::{self, BufferType};
use crate::device::{Device, meta};
use crate::entries::{Entries, Entry, Kind, Lists};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::{TensorFingerprint, TensorPtr};
use crate::list;
use crate::rules::meta as meta_rules;

/// The properties of one tensor that a plan depends on.
struct PlanKey {
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

impl PlanKey {
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
    /// Whether C's allocator has this plan.
    valid: bool,
    keys: Vec<PlanKey>,
    /// The entries whose headers differ between the planned graph and the one that was compared last.
    differ: Vec<usize>,
    /// The rules' verdict on the graph with these keys.
    verdict: PlanVerdict,
    /// The keys that [`Plan::adopt`] replaced, by entry: those in which the graph before the last differs from the
    /// last.
    previous: Vec<(usize, PlanKey)>,
    /// The rules' verdict on the graph before the last.
    previous_verdict: PlanVerdict,
    /// For each entry, the entry indices of its sources, all concatenated.
    srcs: Vec<u32>,
    /// The last placement.
    placement: Option<Arc<Placement>>,
    /// Whether the next graph with these tensors may reuse the placement without asking ggml's allocator.
    reusable: bool,
    /// The addresses of the node and leaf lists of the graph with the last placement.
    lists: Option<Lists>,
    plans: usize,
    /// The weights and states on a meta device: their addresses and split states.
    sharded: Vec<(usize, meta::SplitState)>,
    id: u64,
    /// How many tensors this plan has placed on a meta device, over all allocations.
    used: usize,
}

/// The rules' verdict on a graph: it can run on this device. `None` if it was judged for no single device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlanVerdict(pub(crate) Option<Device>);

/// Which entries rules have yet to judge, on the device that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unjudged {
    /// No entries: the rules have already accepted this graph on this device.
    Nothing,
    /// The entries that differ from a graph that was found to run on this device, or whose sources or roots differ.
    Entries(Vec<usize>),
    All,
}

/// How a graph compares with the planned one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The graph needs the same plan.
    Same(Unjudged),
    /// The graph differs only in sizes, offsets and parameters. Tensors live equally long and share memory in the same
    /// places, so ggml may decide by their sizes alone whether its plan has room for them.
    Sizes(Unjudged),
    /// The graph needs a plan of its own, and rules have to judge all of it.
    Other,
}

impl Plan {
    /// Compares a graph with the planned one, and says what is left to judge for the verdict that is wanted. `by_size`:
    /// whether C may decide by sizes if nothing else differs.
    pub(crate) fn fit(&mut self, graph: &Graph<'_>, wanted: PlanVerdict, by_size: bool) -> Result<Fit> {
        let entries = graph.entries();
        let fits = self.valid
            && self.used <= meta_rules::most_used(entries.len())
            && entries.len() == self.keys.len()
            && entries.all_srcs() == self.srcs
            && meta_rules::places(entries) == self.sharded;
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
            return Ok(Fit::Same(if wanted == self.verdict { Unjudged::Nothing } else { Unjudged::All }));
        }
        let is_previous = self.differ.len() == self.previous.len()
            && self
                .differ
                .iter()
                .zip(&self.previous)
                .all(|(&i, (previous, key))| i == *previous && entries.get(i).is_some_and(|e| is_same(i, e, key)));
        if is_previous && wanted == self.previous_verdict {
            return Ok(Fit::Sizes(Unjudged::Nothing));
        }
        let more = self.differ.len().saturating_sub(self.previous.len());
        self.previous.try_reserve(more).map_err(|_| Error::no_memory("the plan of a graph"))?;
        let affected = self.affected(entries)?;
        let pair = |&i: &usize| entries.get(i).zip(self.keys.get(i));
        Ok(if affected.iter().filter_map(pair).any(|(e, key)| alike(entries, e) != key.alike) {
            Fit::Other
        } else if wanted == self.verdict {
            Fit::Sizes(Unjudged::Entries(affected))
        } else {
            Fit::Sizes(Unjudged::All)
        })
    }

    /// The entries that differ from the planned graph's: in themselves, in a source, or in the root of the entry or of
    /// a source.
    fn affected(&self, entries: &Entries) -> Result<Vec<usize>> {
        let mut differs = list::collect(entries.iter().map(|_| false), "the plan of a graph")?;
        self.differ.iter().filter_map(|&i| differs.get_mut(i).map(|d| *d = true)).for_each(drop);
        let one = |i: usize| differs.get(i).is_some_and(|&d| d);
        let is = |i: usize| one(i) || entries.get(i).is_some_and(|e| one(e.root as usize));
        let affected = entries.iter().enumerate().filter(|(i, e)| is(*i) || entries.src_indices(e).any(is));
        list::collect(affected.map(|(i, _)| i), "the plan of a graph")
    }

    /// Marks the plan as unknown to C's allocator, while C makes another one. [`Plan::adopt`] then records the graph of
    /// the new plan.
    pub(crate) fn suspend(&mut self) {
        self.valid = false;
        self.forget();
    }

    /// Records the rules' verdict on the planned graph.
    pub(crate) fn judge(&mut self, verdict: PlanVerdict) {
        self.verdict = verdict;
    }

    /// Records the graph that was compared last and differs in sizes: C's plan now fits it. `verdict` is that of the
    /// rules.
    pub(crate) fn adopt(&mut self, graph: &Graph<'_>, verdict: PlanVerdict) {
        self.previous.clear();
        self.previous_verdict = std::mem::replace(&mut self.verdict, verdict);
        for &i in &self.differ {
            if let (Some(e), Some(key)) = (graph.entries().get(i), self.keys.get_mut(i)) {
                // `fit` has reserved room in `previous`.
                self.previous.push((i, std::mem::replace(key, PlanKey::of(graph.entries(), e))));
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

    /// Records the graph as planned, with the rules' verdict on it.
    pub(crate) fn set(&mut self, graph: &Graph<'_>, verdict: PlanVerdict) -> Result<()> {
        self.clear();
        self.verdict = verdict;
        let no_memory = |_| Error::no_memory("the plan of a graph");
        self.srcs.try_reserve(graph.entries().all_srcs().len()).map_err(no_memory)?;
        self.keys.try_reserve(graph.entries().len()).map_err(no_memory)?;
        self.sharded = meta_rules::places(graph.entries());
        self.srcs.extend_from_slice(graph.entries().all_srcs());
        self.keys.extend(graph.entries().iter().map(|e| PlanKey::of(graph.entries(), e)));
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

    /// Records the placement that C has just made. `reusable`: whether the next graph may use the placement without
    /// another allocation; `claims`: see [`Placement`].
    pub(crate) fn record(
        &mut self,
        graph: &Graph<'_>,
        reusable: bool,
        claims: Option<Claims>,
    ) -> Result<Arc<Placement>> {
        self.forget();
        // A leaked allocation may still hold the last placement, which must not change then.
        let mut placement = self.placement.take().filter(|p| Arc::strong_count(p) == 1).unwrap_or_default();
        if let Some(placement) = Arc::get_mut(&mut placement) {
            placement.record(graph, claims)?;
        }
        self.reusable = reusable && placement.is_plain(graph);
        self.lists = Some(graph.store.lists());
        self.placement = Some(Arc::clone(&placement));
        Ok(placement)
    }

    /// Whether the last placement may be reused.
    pub(crate) fn is_recorded(&self) -> bool {
        self.reusable
    }

    /// Rules out reuse of the last placement: ggml allocates the next graph.
    pub(crate) fn forget(&mut self) {
        self.reusable = false;
    }

    /// The last placement, if the graph has the same tensors in the same node and leaf lists. The lists must be the
    /// same, because the scheduler still refers to those of the last graph, which may otherwise be freed, or hold
    /// another graph by now. A decoder that resets its context and builds the same graph gets the same tensors and
    /// lists again.
    pub(crate) fn reuse(&self, graph: &Graph<'_>) -> Option<Arc<Placement>> {
        let placement = self.placement.as_ref().filter(|_| self.reusable && self.lists == Some(graph.store.lists()));
        placement.filter(|p| p.is_of(graph)).cloned()
    }

    /// Counts an allocation on a meta device: C keeps some kilobytes for each tensor at each address, so a plan is
    /// renewed after too many allocations.
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
fn is_same(i: usize, e: &Entry, key: &PlanKey) -> bool {
    let is_view = e.root as usize != i;
    let offset_varies = e.views_placed();
    // Not compared: the parameters of a view of placed memory, which are its offset, and those of a custom operation,
    // which are an address.
    let params = !(offset_varies && e.ptr.is_view_at_offset() || TensorPtr::is_custom(e.ptr));
    (e.root, e.mask, e.kind) == (key.root, key.mask, key.kind)
        && e.ptr.is_like(&key.fingerprint, params)
        && (!is_view || offset_varies || e.ptr.view_offs() == key.view_offs)
        && buffer_type(e) == key.buffer_type
}

/// Whether ggml's allocator would make the same plan for the entry, except for sizes.
fn differs_in_sizes(entries: &Entries, i: usize, e: &Entry, key: &PlanKey) -> bool {
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
