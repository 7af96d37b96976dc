//! Graphs: what is to be computed, complete and in order.

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
use store::Lent;

pub(crate) use store::{Lists, Spares};

/// A tensor of a graph.
pub(crate) struct Entry {
    pub(crate) ptr: TensorPtr,
    /// For an input that holds indices, what they must be below.
    pub(crate) below: Option<i64>,
    /// For an input that names rows to write: whether there are views of it in each of whose rows all values must differ.
    pub(crate) distinct: bool,
    /// Where its sources begin in the list of all.
    first: u32,
    /// The entry whose memory this one shares: its own unless it is a view.
    pub(crate) root: u32,
    /// Which of the operation's places for sources are taken.
    pub(crate) mask: u16,
    pub(crate) kind: Kind,
    /// What the tensor is whose memory it shares.
    pub(crate) root_kind: Kind,
    /// Whether the value survives the computation.
    pub(crate) kept: bool,
}

/// What an entry is to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Set by the user before each computation.
    Input,
    /// A leaf of weights or state, with memory of its own.
    Placed(Owner),
    /// Made by an operation.
    Node,
}

/// A computation: operations in the order in which they run (`ggml_cgraph`), made by [`Context::graph`].
///
/// A graph is frozen. It is allocated by [`Sched::alloc`](crate::Sched::alloc) or
/// [`GraphAllocator::alloc`](crate::GraphAllocator::alloc), as often as one likes, but only once at a time.
#[doc(alias = "ggml_cgraph")]
pub struct Graph<'c> {
    store: Lent,
    life: PhantomData<&'c Context>,
}

impl<'c> Graph<'c> {
    pub(crate) fn new(spares: &Spares, outputs: &[Tensor<'c>]) -> Result<Self> {
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

    /// The operations in the order in which they run (`ggml_graph_node`).
    #[doc(alias = "ggml_graph_node")]
    #[doc(alias = "ggml_graph_nodes")]
    pub fn nodes(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.entries().iter().filter(|e| e.kind == Kind::Node).map(|e| {
            // SAFETY: entries live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(e.ptr) }
        })
    }

    /// What the operation `t` computes with, in the order of its operands; nothing for leaves and for tensors that are
    /// not part of the graph. The scheduler's copies are not among them, allocated or not.
    pub fn sources(&self, t: Tensor<'_>) -> impl Iterator<Item = Tensor<'_>> {
        let entry = self.position(t.ptr()).and_then(|i| self.entries().get(i));
        entry.into_iter().flat_map(|e| self.srcs(e)).map(|(_, ptr)| {
            // SAFETY: it lives for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(ptr) }
        })
    }

    /// The tensor with this name, if it is part of the graph (`ggml_graph_get_tensor`).
    #[doc(alias = "ggml_graph_get_tensor")]
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.entries().iter().find(|e| e.ptr.name() == name).map(|e| {
            // SAFETY: entries live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(e.ptr) }
        })
    }

    /// Logs all operations and leaves (`ggml_graph_print`), as information for the target `ggml`.
    ///
    /// # Errors
    ///
    /// None that is known: ggml only reads the graph.
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

    /// Where the lists lie that C sees: a scheduler looks at those of the graph that it allocated last, whichever it is
    /// given to compute.
    pub(crate) fn lists(&self) -> Lists {
        self.store.lists()
    }

    /// The operations that are closures.
    pub(crate) fn closures(&self) -> &[TensorPtr] {
        &self.store.closures
    }

    /// The views of an input in each of whose rows all values must differ.
    pub(crate) fn distinct(&self, input: TensorPtr) -> impl Iterator<Item = TensorPtr> {
        self.store.distinct.iter().copied().filter(move |rows| rows.root() == input)
    }

    /// Fails where a computation is under way, in whose closure this is, that uses some of the tensors.
    pub(crate) fn check_free(&self, call: &'static str) -> Result<()> {
        if !any_in_use() {
            return Ok(());
        }
        let used = self.entries().iter().find(|e| e.is_allocated_by_graph() && e.ptr.is_in_use());
        used.map_or(Ok(()), |e| Err(Error::InUse { call, tensor: e.ptr.info() }))
    }

    /// Debug builds check that headers say what their builders left (`alloc/placement.rs`).
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

    /// The position of `t` among the entries.
    pub(crate) fn position(&self, t: TensorPtr) -> Option<usize> {
        self.store.position(t)
    }

    /// The sources of an entry as its builder left them, with their places: the scheduler replaces some by copies of its
    /// own.
    #[inline]
    pub(crate) fn srcs(&self, e: &Entry) -> impl Iterator<Item = (usize, TensorPtr)> {
        let mut left = e.mask;
        self.store.srcs.get(e.first as usize..).unwrap_or_default().iter().map_while(move |&src| {
            let i = left.trailing_zeros();
            left = left.checked_sub(1)? & left;
            Some((i as usize, self.entries().get(src as usize)?.ptr))
        })
    }

    /// The entries of all entries' sources, in order.
    pub(crate) fn all_srcs(&self) -> &[u32] {
        &self.store.srcs
    }

    /// A list for the inputs that have no value yet. It comes back with [`Graph::keep_unset`].
    pub(crate) fn take_unset(&self) -> Vec<usize> {
        self.store.unset.take()
    }

    pub(crate) fn keep_unset(&self, list: Vec<usize>) {
        self.store.unset.set(list);
    }
}

impl Entry {
    /// Whether the allocator gives the tensor its memory.
    #[inline]
    pub(crate) fn is_allocated_by_graph(&self) -> bool {
        !matches!(self.kind, Kind::Placed(_))
    }

    /// Whether it is a view of memory that is not the graph's.
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
