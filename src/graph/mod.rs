//! Graphs: what is to be computed, complete and in order.

mod dot;
mod walk;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::context::Context;
use crate::context::pool::Pool;
use crate::error::{Error, Result};
use crate::guard;
use crate::ops::{custom, index};
use crate::tensor::Tensor;
use crate::tensor::ptr::{Owner, TensorPtr};
use walk::{Index, Walk};

/// A tensor of a graph.
pub(crate) struct Entry {
    pub(crate) ptr: TensorPtr,
    /// The sources as the builder left them: the scheduler replaces some by copies of its own.
    pub(crate) srcs: [*mut sys::ggml_tensor; sys::GGML_MAX_SRC as usize],
    pub(crate) kind: Kind,
    /// Whether the value survives the computation.
    pub(crate) kept: bool,
    /// For an input that holds indices, what they must be below.
    pub(crate) below: Option<i64>,
    /// For an input that names rows to write, the views of it in each of whose rows all values must differ.
    pub(crate) distinct: Vec<TensorPtr>,
}

/// What an entry is to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Set by the user before each computation.
    Input,
    /// A leaf of weights or state, with memory of its own.
    Placed,
    /// Made by an operation.
    Node,
}

/// A computation: operations in the order in which they run (`ggml_cgraph`), made by [`Context::graph`]. It takes as much
/// memory as it needs (`ggml_graph_overhead_custom`).
///
/// A graph is frozen. It is allocated by [`Sched::alloc`](crate::Sched::alloc) or
/// [`GraphAllocator::alloc`](crate::GraphAllocator::alloc), as often as one likes, but only once at a time.
#[doc(alias = "ggml_cgraph")]
#[doc(alias = "ggml_graph_overhead")]
#[doc(alias = "ggml_graph_overhead_custom")]
pub struct Graph<'c> {
    raw: NonNull<sys::ggml_cgraph>,
    /// Holds the C graph.
    _pool: Pool,
    entries: Vec<Entry>,
    index: Index,
    nodes: usize,
    /// The operations that are closures.
    closures: Vec<TensorPtr>,
    life: PhantomData<&'c Context>,
}

impl<'c> Graph<'c> {
    pub(crate) fn new(outputs: &[Tensor<'c>]) -> Result<Self> {
        let walk = Walk::from(outputs.iter().map(|t| t.ptr()));
        if walk.nodes == 0 {
            return Err(Error::EmptyGraph);
        }
        let size = walk.nodes.max(walk.order.len() - walk.nodes) + 1;
        // SAFETY: a pure function; `grads` is off.
        let bytes = unsafe { sys::ggml_graph_overhead_custom(size, false) };
        let pool = Pool::new(bytes)?;
        let raw = guard::call("ggml_new_graph_custom", || {
            // SAFETY: the pool is live and was made with the room that a graph of this size takes.
            unsafe { sys::ggml_new_graph_custom(pool.as_ptr(), size, false) }
        })?;
        let raw = NonNull::new(raw).ok_or(Error::Null { call: "ggml_new_graph_custom", log: Box::default() })?;
        // C recurses from each tensor it is given to all that it has not seen. Where the graph is deep, it is given every
        // tensor in order, so that it finds nothing new below (H35).
        let expand = |t: TensorPtr| {
            guard::call("ggml_build_forward_expand", || {
                // SAFETY: the graph has room for all entries; the tensors live for 'c. C keeps pointers to them in the
                // graph, which lives no longer. It writes flags on nodes and names unnamed tensors: nodes belong to this
                // thread, and leaves of weights have names.
                unsafe { sys::ggml_build_forward_expand(raw.as_ptr(), t.as_ptr()) }
            })
        };
        if walk.deep {
            walk.order.iter().copied().try_for_each(expand)?;
        } else {
            outputs.iter().map(|t| t.ptr()).try_for_each(expand)?;
        }
        let mut entries: Vec<_> = walk.order.iter().map(|&ptr| Entry::new(ptr)).collect();
        if let Some(t) = entries.iter().find(|e| !walk.index.contains_key(&e.ptr.root())) {
            // No builder makes a view without a way to what it looks at; allocation relies on it.
            return Err(Error::NotPart {
                call: "graph",
                tensor: t.ptr.info(),
                whole: "a graph with its view's source",
            });
        }
        for (indices, n) in walk.order.iter().flat_map(|&t| index::bounds(t)) {
            if let Some(e) = walk.index.get(&indices).and_then(|&i| entries.get_mut(i)) {
                e.below = Some(e.below.map_or(n, |below| below.min(n)));
            }
        }
        for rows in walk.order.iter().filter_map(|&t| index::distinct(t)) {
            if let Some(e) = walk.index.get(&rows.root()).and_then(|&i| entries.get_mut(i)) {
                e.distinct.push(rows);
            }
        }
        let closures = walk.order.iter().copied().filter(|&t| custom::is_custom(t)).collect();
        Ok(Self { raw, _pool: pool, entries, index: walk.index, nodes: walk.nodes, closures, life: PhantomData })
    }

    /// The number of operations (`ggml_graph_n_nodes`).
    #[doc(alias = "ggml_graph_n_nodes")]
    pub fn n_nodes(&self) -> usize {
        self.nodes
    }

    /// The operations in the order in which they run (`ggml_graph_node`).
    #[doc(alias = "ggml_graph_node")]
    #[doc(alias = "ggml_graph_nodes")]
    pub fn nodes(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.entries.iter().filter(|e| e.kind == Kind::Node).map(|e| {
            // SAFETY: entries live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(e.ptr) }
        })
    }

    /// What the operation `t` computes with, in the order of its operands; nothing for leaves and for tensors that are
    /// not part of the graph. The scheduler's copies are not among them, allocated or not.
    pub fn sources(&self, t: Tensor<'_>) -> impl Iterator<Item = Tensor<'_>> {
        let srcs = self.position(t.ptr()).and_then(|i| self.entries.get(i)).map(|e| e.srcs);
        srcs.into_iter().flatten().filter_map(NonNull::new).map(|raw| {
            // SAFETY: a source of a tensor of the graph, as the builder left it, lives as long (TensorPtr's invariants).
            let ptr = unsafe { TensorPtr::new(raw) };
            // SAFETY: it lives for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(ptr) }
        })
    }

    /// The tensor with this name, if it is part of the graph (`ggml_graph_get_tensor`).
    #[doc(alias = "ggml_graph_get_tensor")]
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.entries.iter().find(|e| e.ptr.name() == name).map(|e| {
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
        guard::call("ggml_graph_print", || {
            // SAFETY: the graph is live, and so are its tensors, which C reads: dimensions, names, flags. C keeps nothing.
            unsafe { sys::ggml_graph_print(self.as_ptr()) }
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_cgraph {
        self.raw.as_ptr()
    }

    /// The operations that are closures.
    pub(crate) fn closures(&self) -> &[TensorPtr] {
        &self.closures
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The position of `t` among the entries.
    pub(crate) fn position(&self, t: TensorPtr) -> Option<usize> {
        self.index.get(&t).copied()
    }
}

impl Entry {
    fn new(ptr: TensorPtr) -> Self {
        let kind = if !walk::is_leaf(ptr) {
            Kind::Node
        } else if ptr.owner() == Owner::Graph {
            Kind::Input
        } else {
            Kind::Placed
        };
        let output = sys::GGML_TENSOR_FLAG_OUTPUT.cast_signed();
        let root = ptr.root();
        // What lies in a state or in weights is there for good; the rest only if ggml was told to keep it.
        let kept = root.owner() != Owner::Graph || root.flags() & output != 0;
        Self { ptr, srcs: ptr.srcs(), kind, kept, below: None, distinct: Vec::new() }
    }

    /// Whether the allocator gives the tensor its memory.
    pub(crate) fn is_allocated_by_graph(&self) -> bool {
        self.ptr.owner() == Owner::Graph || self.kind == Kind::Node
    }
}

impl fmt::Debug for Graph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("nodes", &self.nodes).field("tensors", &self.entries.len()).finish()
    }
}
