//! Graphs: the operations to compute, complete and in order.

mod checked;
mod dot;
mod store;
#[cfg(feature = "tools")]
pub(crate) mod svg;
mod table;

use std::fmt;
use std::marker::PhantomData;

use ggml_sys as sys;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr, any_in_use};
use crate::tensor::Tensor;
use crate::{callback, guard, log};
use store::StoreGuard;

pub(crate) use store::{Lists, StorePool};

/// A tensor of a graph, with what allocation needs to know of it.
pub(crate) struct Entry {
    pub(crate) ptr: TensorPtr,
    /// The exclusive upper bound of an input that holds indices.
    pub(crate) below: Option<i64>,
    /// For an input of row indices to write to: whether some rows in it need distinct values (`Store::distinct`).
    pub(crate) distinct: bool,
    /// The start of its sources in `Store::srcs`.
    first: u32,
    /// The index of the entry whose memory it shares: itself unless it is a view.
    pub(crate) root: u32,
    /// A bit for each of the operation's source slots in use.
    pub(crate) mask: u16,
    pub(crate) kind: Kind,
    /// The root's kind.
    pub(crate) root_kind: Kind,
    /// Whether its value is readable after the computation.
    pub(crate) kept: bool,
}

/// An entry's role in an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Set by the user before each computation.
    Input,
    /// A leaf of weights or state, with memory already.
    Placed(Owner),
    /// The result of an operation.
    Node,
}

/// The operations of a computation in execution order (`ggml_cgraph`), made by [`Context::graph`].
///
/// A graph is immutable. [`Sched::alloc`](crate::Sched::alloc) and
/// [`GraphAllocator::alloc`](crate::GraphAllocator::alloc) allocate it, any number of times, but only once at a time.
#[doc(alias = "ggml_cgraph")]
pub struct Graph<'c> {
    store: StoreGuard,
    life: PhantomData<&'c Context>,
}

impl<'c> Graph<'c> {
    pub(crate) fn new(spares: &StorePool, outputs: &[Tensor<'c>]) -> Result<Self> {
        callback::check_open("Context::graph")?;
        let mut store = spares.take();
        store.fill(&outputs.iter().map(|t| t.ptr()))?;
        if store.n_nodes() == 0 {
            return Err(Error::EmptyGraph);
        }
        if cfg!(debug_assertions) {
            checked::as_by_ggml(&store)?;
        }
        let this = Self { store, life: PhantomData };
        this.debug_assert_as_built();
        Ok(this)
    }

    /// The number of operations (`ggml_graph_n_nodes`).
    #[doc(alias = "ggml_graph_n_nodes")]
    pub fn n_nodes(&self) -> usize {
        self.store.n_nodes()
    }

    /// The operations in execution order (`ggml_graph_node`).
    #[doc(alias = "ggml_graph_node")]
    #[doc(alias = "ggml_graph_nodes")]
    pub fn nodes(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.entries().iter().filter(|e| e.kind == Kind::Node).map(|e| {
            // SAFETY: entries live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(e.ptr) }
        })
    }

    /// The operands of `t`, in order; none for leaves and for tensors that are not part of the graph. Always as built,
    /// even while the scheduler uses copies on other devices.
    pub fn sources(&self, t: Tensor<'_>) -> impl Iterator<Item = Tensor<'_>> {
        let entry = self.position(t.ptr()).and_then(|i| self.entries().get(i));
        entry.into_iter().flat_map(|e| self.srcs(e)).map(|(_, ptr)| {
            // SAFETY: sources live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(ptr) }
        })
    }

    /// The tensor with this name, if the graph has one (`ggml_graph_get_tensor`).
    #[doc(alias = "ggml_graph_get_tensor")]
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.entries().iter().find(|e| e.ptr.name() == name).map(|e| {
            // SAFETY: entries live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(e.ptr) }
        })
    }

    /// Logs all operations and leaves (`ggml_graph_print`), at level info and with target `ggml`.
    ///
    /// # Errors
    ///
    /// None are known: ggml only reads the graph.
    #[doc(alias = "ggml_graph_print")]
    pub fn print(&self) -> Result<()> {
        log::public(|| {
            guard::call("ggml_graph_print", || {
                // SAFETY: the graph is live, and so are its tensors, which C reads: dimensions, names, flags. C keeps nothing.
                unsafe { sys::ggml_graph_print(self.as_ptr()) }
            })
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_cgraph {
        self.store.as_ptr()
    }

    /// The addresses of C's node and leaf lists: a scheduler reads those of the graph that it allocated last, whichever
    /// it computes.
    pub(crate) fn lists(&self) -> Lists {
        self.store.lists()
    }

    /// The custom operations, whose kernels are Rust closures.
    pub(crate) fn closures(&self) -> &[TensorPtr] {
        &self.store.closures
    }

    /// The views of an input of which each row must have distinct values.
    pub(crate) fn distinct(&self, input: TensorPtr) -> impl Iterator<Item = TensorPtr> {
        self.store.distinct.iter().copied().filter(move |rows| rows.root() == input)
    }

    /// Fails within the closure of a running computation that uses one of the graph's tensors.
    pub(crate) fn check_free(&self, call: &'static str) -> Result<()> {
        if !any_in_use() {
            return Ok(());
        }
        let used = self.entries().iter().find(|e| e.is_allocated_by_graph() && e.ptr.is_in_use());
        used.map_or(Ok(()), |e| Err(Error::InUse { call, tensor: e.ptr.info() }))
    }

    /// Checks in debug builds that headers are as their builders left them (`alloc/placement.rs`).
    pub(crate) fn debug_assert_as_built(&self) {
        if cfg!(debug_assertions) {
            for e in self.entries().iter().filter(|e| e.is_allocated_by_graph()) {
                assert!(e.ptr.is_as_built(e.views_placed()), "the memory of {}", e.ptr.info());
                let srcs = self.srcs(e).all(|(i, src)| e.ptr.source(i) == Some(src));
                assert!(srcs && e.ptr.source_mask() == e.mask, "the sources of {}", e.ptr.info());
            }
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.store.entries
    }

    /// The index of `t` among the entries.
    pub(crate) fn position(&self, t: TensorPtr) -> Option<usize> {
        self.store.position(t)
    }

    /// The sources of an entry as built, with their slots: the scheduler replaces some by copies on other devices.
    #[inline]
    pub(crate) fn srcs(&self, e: &Entry) -> impl Iterator<Item = (usize, TensorPtr)> {
        self.src_entries(e).map(|(i, src)| (i, src.ptr))
    }

    /// The entries of an entry's sources, with their slots.
    #[inline]
    pub(crate) fn src_entries(&self, e: &Entry) -> impl Iterator<Item = (usize, &Entry)> {
        let mut left = e.mask;
        self.store.srcs.get(e.first as usize..).unwrap_or_default().iter().map_while(move |&src| {
            let i = left.trailing_zeros();
            left = left.checked_sub(1)? & left;
            Some((i as usize, self.entries().get(src as usize)?))
        })
    }

    /// Source entry indices of all entries, concatenated.
    pub(crate) fn all_srcs(&self) -> &[u32] {
        &self.store.srcs
    }

    /// Lends a list for the inputs without a value; [`Graph::keep_unset`] returns it for reuse.
    pub(crate) fn take_unset(&self) -> Vec<usize> {
        self.store.unset.take()
    }

    pub(crate) fn keep_unset(&self, list: Vec<usize>) {
        self.store.unset.set(list);
    }
}

impl Entry {
    /// Whether the graph allocator gives it memory.
    #[inline]
    pub(crate) fn is_allocated_by_graph(&self) -> bool {
        !matches!(self.kind, Kind::Placed(_))
    }

    /// Whether it is a view of weights or state.
    #[inline]
    pub(crate) fn views_placed(&self) -> bool {
        self.is_allocated_by_graph() && matches!(self.root_kind, Kind::Placed(_))
    }
}

impl fmt::Debug for Graph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("nodes", &self.n_nodes()).field("tensors", &self.entries().len()).finish()
    }
}
