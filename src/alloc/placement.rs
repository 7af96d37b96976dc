//! Where an allocation put a graph's tensors, stored outside the C headers. Headers have it only while C uses them.
//!
//! # Invariant
//!
//! Outside of this crate's calls, each header of a tensor that the graph allocates is as its builder left it: no data
//! pointer (except views of placed memory), no buffer, no `extra`, and the sources it was built from. C's list of a
//! graph's operations is in the order in which they were built; devices may change that order when a scheduler plans.
//! Only [`AsBuilt`] and [`Live`] let C change any of this, and their drops restore it. So a second graph, another
//! allocation or a device query never sees what an earlier allocation wrote, not even one that was leaked.
//!
//! One exception: during [`compute_async`](crate::Run::compute_async)'s closure devices may still read the
//! headers. They are marked [in use](crate::header::TensorPtr::is_in_use) then, and every other use is refused.

use std::sync::Arc;

use super::views::Claims;
use crate::entries::Entry;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::{InUseScope, SavedPlacement, TensorPtr};
use crate::list;

/// The placement of each entry of a graph, and the sources that the scheduler replaced by copies.
#[derive(Default)]
pub(crate) struct Placement {
    homes: Vec<SavedPlacement>,
    /// The copies that replaced sources, sorted by entry and slot.
    copies: Vec<Copied>,
    /// The order in which devices compute the operations ([`Graph::order`]).
    order: Vec<u32>,
    /// The views of states that a graph on a meta device has claimed. On a meta device, all headers need their memory
    /// for the transfer of one tensor.
    claims: Option<Claims>,
}

/// A source that the scheduler replaced by a copy on another device.
struct Copied {
    entry: usize,
    slot: usize,
    built: TensorPtr,
    copy: TensorPtr,
}

// SAFETY: a placement's pointers are followed only for a graph of the same tensors (Plan::reuse), on the graph's
// thread. Otherwise they are only compared.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers are compared before they are followed")]
unsafe impl Send for Placement {}
// SAFETY: shared use only reads, because `&Placement` has no interior mutability. Pointers are followed only on the
// graph's thread.
unsafe impl Sync for Placement {}

impl Placement {
    /// Records what C has just written into the graph's headers and its list of operations.
    pub(super) fn record(&mut self, graph: &Graph<'_>, claims: Option<Claims>) -> Result<()> {
        let entries = graph.entries();
        self.clear();
        self.homes.try_reserve(entries.len()).map_err(|_| Error::no_memory("where a graph lies"))?;
        self.homes.extend(entries.iter().map(|e| e.ptr.placement()));
        for (entry, e) in entries.iter().enumerate() {
            for (slot, built) in graph.entries().srcs(e) {
                let Some(copy) = e.ptr.source(slot).filter(|&now| now != built) else { continue };
                list::push(&mut self.copies, Copied { entry, slot, built, copy }, "copies between devices")?;
            }
        }
        self.order = graph.store.order()?;
        self.claims = claims;
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.homes.clear();
        self.copies.clear();
        self.claims = None;
    }

    /// Whether addresses alone describe the placement: no copied sources, and no tensor with an `extra` of its device.
    /// Repacked weights have an `extra`, too, but no graph changes where they lie.
    pub(super) fn is_plain(&self, graph: &Graph<'_>) -> bool {
        let placed = graph.entries().iter().zip(&self.homes).filter(|(e, _)| e.is_allocated_by_graph());
        self.copies.is_empty() && !placed.map(|(_, home)| home).any(SavedPlacement::has_extra)
    }

    /// Whether the placement was recorded from the tensors of this graph.
    pub(super) fn is_of(&self, graph: &Graph<'_>) -> bool {
        let entries = graph.entries();
        entries.len() == self.homes.len() && entries.iter().zip(&self.homes).all(|(e, h)| e.ptr == h.tensor)
    }

    /// The copy that the scheduler put in place of the source in `slot` of an entry, by the entry's index.
    pub(crate) fn copy_of(&self, entry: usize, slot: usize) -> Option<TensorPtr> {
        let at = self.copies.binary_search_by_key(&(entry, slot), |c| (c.entry, c.slot)).ok()?;
        self.copies.get(at).map(|c| c.copy)
    }

    /// Writes the placement into the graph's headers.
    fn write(&self, graph: &Graph<'_>) {
        for (e, home) in graph.entries().iter().zip(&self.homes).filter(|(e, _)| e.is_allocated_by_graph()) {
            home.write(e.views_placed());
        }
        for c in &self.copies {
            self.set_source(c, c.copy);
        }
        if !self.order.is_empty() {
            graph.store.reorder(&self.order);
        }
    }

    /// Restores the graph's headers as built.
    fn restore(&self, graph: &Graph<'_>) {
        for (e, home) in graph.entries().iter().zip(&self.homes).filter(|(e, _)| e.is_allocated_by_graph()) {
            home.clear(e.views_placed());
        }
        for c in &self.copies {
            self.set_source(c, c.built);
        }
        if !self.order.is_empty() {
            graph.store.reorder(&[]);
        }
    }

    fn set_source(&self, c: &Copied, src: TensorPtr) {
        if let Some(home) = self.homes.get(c.entry) {
            home.tensor.set_source(c.slot, src);
        }
    }

    /// Runs the transfer `f` while the header of entry `e` has the memory that the placement gives it.
    pub(crate) fn with_placed<R>(
        &self,
        call: &'static str,
        graph: &Graph<'_>,
        e: &Entry,
        f: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        /// A guard whose drop restores the headers.
        struct Out<'a>([Option<(&'a SavedPlacement, bool)>; 2]);
        impl Drop for Out<'_> {
            fn drop(&mut self) {
                self.0.into_iter().flatten().for_each(|(home, views_placed)| home.clear(views_placed));
            }
        }
        graph.check_free(call)?;
        if self.claims.is_some() {
            let _live = Live::of(call, graph, self)?;
            return f();
        }
        // A device reads the buffer of a view from its root, so the root's header is filled in, too.
        let places = [Some(e), graph.entries().get(e.root as usize).filter(|root| root.ptr != e.ptr)];
        let homes = places.map(|place| {
            let e = place.filter(|e| e.is_allocated_by_graph())?;
            let home = graph.entries().position(e.ptr).and_then(|i| self.homes.get(i))?;
            Some((home, e.views_placed()))
        });
        homes.iter().rev().flatten().for_each(|&(home, views_placed)| home.write(views_placed));
        let _out = Out(homes);
        f()
    }
}

/// A guard for a graph whose headers C may change: its drop restores what the builders left.
pub(crate) struct AsBuilt<'g, 'c>(&'g Graph<'c>);

impl<'g, 'c> AsBuilt<'g, 'c> {
    pub(crate) fn after(graph: &'g Graph<'c>) -> Self {
        Self(graph)
    }
}

impl Drop for AsBuilt<'_, '_> {
    fn drop(&mut self) {
        let graph = self.0;
        graph.store.reorder(&[]);
        for e in graph.entries().iter().filter(|e| e.is_allocated_by_graph()) {
            e.ptr.release_from(e.views_placed());
            for (i, src) in graph.entries().srcs(e) {
                e.ptr.set_source(i, src);
            }
        }
        graph.debug_assert_as_built();
    }
}

/// A guard for a graph whose headers have the graph's placement, so that C can compute it; its drop restores them.
pub(crate) struct Live<'g, 'c, P: AsRef<Placement> = Arc<Placement>> {
    graph: &'g Graph<'c>,
    placement: P,
    sharing: Option<InUseScope>,
}

impl AsRef<Self> for Placement {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<'g, 'c, P: AsRef<Placement>> Live<'g, 'c, P> {
    /// # Errors
    ///
    /// [`Error::InUse`] if devices still use the tensors for another computation; [`Error::Unsupported`] if another
    /// graph has the views of a state by now.
    pub(crate) fn of(call: &'static str, graph: &'g Graph<'c>, placement: P) -> Result<Self> {
        graph.check_free(call)?;
        placement.as_ref().claims.as_ref().map_or(Ok(()), |claims| claims.check(call, graph))?;
        graph.debug_assert_as_built(); // nobody else computes it now
        placement.as_ref().write(graph);
        Ok(Self { graph, placement, sharing: None })
    }

    /// Marks the graph's tensors as in use, before user code runs.
    pub(crate) fn share(&mut self) {
        self.sharing = Some(InUseScope::begin());
        self.mark(true);
    }

    fn mark(&self, in_use: bool) {
        self.graph.entries().iter().filter(|e| e.is_allocated_by_graph()).for_each(|e| e.ptr.set_in_use(in_use));
    }
}

impl<P: AsRef<Placement>> Drop for Live<'_, '_, P> {
    fn drop(&mut self) {
        if self.sharing.take().is_some() {
            self.mark(false);
        }
        self.placement.as_ref().restore(self.graph);
        self.graph.debug_assert_as_built();
    }
}
