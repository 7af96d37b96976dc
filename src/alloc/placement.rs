//! Where an allocation put a graph: beside the headers, which say so only while C uses them.
//!
//! # Invariant
//!
//! Outside of the calls of this crate, every header of a graph's own tensors is as its builder left it: no memory (for a view
//! of placed memory: its address there), no buffer, no `extra`, the sources that it was built from. [`AsBuilt`] and [`Live`]
//! are the only two that let C or an allocation change that, and their drops restore it. So a second graph, another
//! allocation, or a question to a device never meets what an allocation left, not even one that was forgotten.
//!
//! One exception: within [`compute_async`](crate::Allocated::compute_async)'s closure devices may still be looking at headers.
//! They are marked as [in use](crate::header::TensorPtr::is_in_use) then, and refused everywhere.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::graph::{Entry, Graph};
use crate::header::{InUseScope, SavedPlacement, TensorPtr};
use crate::list;

/// Where each entry of a graph lies, and which of its sources the scheduler replaced by copies of its own.
#[derive(Default)]
pub(crate) struct Placement {
    homes: Vec<SavedPlacement>,
    copies: Vec<Copied>,
    /// Whether a device wants to see all headers even for the transfer of one tensor, as a meta device does.
    whole: bool,
}

/// A source that the scheduler replaced.
struct Copied {
    entry: usize,
    slot: usize,
    built: TensorPtr,
    copy: TensorPtr,
}

// SAFETY: the pointers are followed only for a graph whose tensors they are, on that graph's thread; until then they are compared.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers are compared before they are followed")]
unsafe impl Send for Placement {}
// SAFETY: as above; through a shared reference nothing of it changes.
unsafe impl Sync for Placement {}

impl Placement {
    /// Notes what C has just written into the graph's headers.
    pub(super) fn note(&mut self, graph: &Graph<'_>, whole: bool) -> Result<()> {
        let entries = graph.entries();
        self.clear();
        self.homes.try_reserve(entries.len()).map_err(|_| Error::no_memory("where a graph lies"))?;
        self.homes.extend(entries.iter().map(|e| e.ptr.placement()));
        for (entry, e) in entries.iter().enumerate() {
            for (slot, built) in graph.srcs(e) {
                let Some(copy) = e.ptr.source(slot).filter(|&now| now != built) else { continue };
                list::push(&mut self.copies, Copied { entry, slot, built, copy }, "copies between devices")?;
            }
        }
        self.whole = whole;
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.homes.clear();
        self.copies.clear();
    }

    /// Whether the headers alone say where everything is: no copies, and nothing that a device keeps with a tensor.
    pub(super) fn is_plain(&self) -> bool {
        self.copies.is_empty() && !self.homes.iter().any(SavedPlacement::has_extra)
    }

    /// Whether it is of these very tensors.
    pub(super) fn is_of(&self, graph: &Graph<'_>) -> bool {
        let entries = graph.entries();
        entries.len() == self.homes.len() && entries.iter().zip(&self.homes).all(|(e, h)| e.ptr == h.tensor)
    }

    /// The copy that an entry's operation reads in place of a source.
    pub(crate) fn copy_of(&self, e: &Entry, slot: usize) -> Option<TensorPtr> {
        let is = |c: &&Copied| c.slot == slot && self.homes.get(c.entry).is_some_and(|h| h.tensor == e.ptr);
        self.copies.iter().find(is).map(|c| c.copy)
    }

    fn put_in(&self, graph: &Graph<'_>) {
        for (e, home) in graph.entries().iter().zip(&self.homes).filter(|(e, _)| e.is_allocated_by_graph()) {
            home.put_in(e.views_placed());
        }
        for c in &self.copies {
            self.set_source(c, c.copy);
        }
    }

    fn take_out(&self, graph: &Graph<'_>) {
        for (e, home) in graph.entries().iter().zip(&self.homes).filter(|(e, _)| e.is_allocated_by_graph()) {
            home.take_out(e.views_placed());
        }
        for c in &self.copies {
            self.set_source(c, c.built);
        }
    }

    fn set_source(&self, c: &Copied, src: TensorPtr) {
        if let Some(home) = self.homes.get(c.entry) {
            home.tensor.set_source(c.slot, src);
        }
    }

    /// Runs `f` with the memory of one entry in its header: for transfers.
    pub(super) fn reach<R>(
        &self,
        call: &'static str,
        graph: &Graph<'_>,
        e: &Entry,
        f: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        /// Takes out what was put in.
        struct Out<'a>([Option<(&'a SavedPlacement, bool)>; 2]);
        impl Drop for Out<'_> {
            fn drop(&mut self) {
                self.0.into_iter().flatten().for_each(|(home, views_placed)| home.take_out(views_placed));
            }
        }
        graph.check_free(call)?;
        if self.whole {
            let _live = Live::of(call, graph, self)?;
            return f();
        }
        // Devices find a view by the tensor that it looks at.
        let places = [Some(e), graph.entries().get(e.root as usize).filter(|root| root.ptr != e.ptr)];
        let homes = places.map(|place| {
            let e = place.filter(|e| e.is_allocated_by_graph())?;
            let home = graph.position(e.ptr).and_then(|i| self.homes.get(i))?;
            Some((home, e.views_placed()))
        });
        homes.iter().rev().flatten().for_each(|&(home, views_placed)| home.put_in(views_placed));
        let _out = Out(homes);
        f()
    }
}

/// A graph whose headers C may change, until this is dropped: they are then put back to what their builders left.
pub(crate) struct AsBuilt<'g, 'c>(&'g Graph<'c>);

impl<'g, 'c> AsBuilt<'g, 'c> {
    pub(crate) fn after(graph: &'g Graph<'c>) -> Self {
        Self(graph)
    }
}

impl Drop for AsBuilt<'_, '_> {
    fn drop(&mut self) {
        let graph = self.0;
        for e in graph.entries().iter().filter(|e| e.is_allocated_by_graph()) {
            e.ptr.release_from(e.views_placed());
            for (i, src) in graph.srcs(e) {
                e.ptr.set_source(i, src);
            }
        }
        graph.debug_assert_as_built();
    }
}

/// A graph whose headers say where it lies, until this is dropped: for C to compute it.
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
    /// [`Error::InUse`] where devices still use the tensors for another computation.
    pub(crate) fn of(call: &'static str, graph: &'g Graph<'c>, placement: P) -> Result<Self> {
        graph.check_free(call)?;
        placement.as_ref().put_in(graph);
        Ok(Self { graph, placement, sharing: None })
    }

    /// Marks the tensors as in use, before user code runs.
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
        self.placement.as_ref().take_out(self.graph);
        self.graph.debug_assert_as_built();
    }
}
