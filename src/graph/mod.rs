//! Graphs: the operations to compute, complete and in order.

mod checked;
mod work;

use std::cell::OnceCell;
use std::marker::PhantomData;

use ggml_sys as sys;

use crate::context::Context;
use crate::debug::debug;
use crate::entries::{Entries, Kind, StoreGuard, StorePool};
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::header::any_in_use;
use crate::rules::indices;
use crate::tensor::Tensor;
use crate::{callback, log};

pub(crate) use work::{Team, depends_on_threads};

/// The operations of a computation in execution order (`ggml_cgraph`), made by [`Context::graph`].
///
/// A graph is immutable. [`Sched::alloc`](crate::Sched::alloc) and
/// [`GraphAllocator::alloc`](crate::GraphAllocator::alloc) allocate it, any number of times. Several schedulers and
/// allocators may hold it at once, each in memory of its own.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [2])?;
/// let y = ctx.relu(ctx.neg(x)?)?.named("y")?;
/// let graph = ctx.graph([y])?;
/// assert_eq!(graph.nodes().map(|t| t.op()).collect::<Vec<_>>(), ["NEG", "RELU"]);
/// assert_eq!(graph.tensor("y"), Some(y));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_cgraph")]
pub struct Graph<'c> {
    pub(crate) store: StoreGuard,
    life: PhantomData<&'c Context>,
    work: OnceCell<work::Work>,
}

impl Context {
    /// The graph of `outputs` and all that they depend on, visited in the given order (`ggml_new_graph_custom`,
    /// `ggml_build_forward_expand`). The graph can be allocated and computed, but not changed.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [2])?;
    /// let (mean, squares) = (ctx.mean(x)?, ctx.sqr(x)?);
    /// assert_eq!(ctx.graph([mean])?.n_nodes(), 1);
    /// assert_eq!(ctx.graph([mean, squares])?.n_nodes(), 2);
    /// assert!(matches!(ctx.graph([x]), Err(Error::EmptyGraph)));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::EmptyGraph`] if the outputs depend on no operation.
    #[doc(alias = "ggml_new_graph_custom")]
    #[doc(alias = "ggml_new_graph")]
    #[doc(alias = "ggml_build_forward_expand")]
    pub fn graph<'c>(&'c self, outputs: impl AsRef<[Tensor<'c>]>) -> Result<Graph<'c>> {
        callback::check_reentry("Context::graph")?;
        let outputs = outputs.as_ref();
        for &t in outputs.iter().filter(|t| t.is_of_context()) {
            self.output(t)?;
        }
        Graph::new(self.stores(), outputs)
    }
}

impl<'c> Graph<'c> {
    pub(crate) fn new(stores: &StorePool, outputs: &[Tensor<'c>]) -> Result<Self> {
        callback::check_reentry("Context::graph")?;
        let mut store = stores.take();
        store.fill(&outputs.iter().map(|t| t.ptr()))?;
        if store.n_nodes() == 0 {
            return Err(Error::EmptyGraph);
        }
        indices::record(&mut store.entries)?;
        if cfg!(debug_assertions) {
            checked::as_by_ggml(&store)?;
        }
        let this = Self { store, life: PhantomData, work: OnceCell::new() };
        this.debug_assert_as_built();
        Ok(this)
    }

    /// The number of operations (`ggml_graph_n_nodes`).
    #[doc(alias = "ggml_graph_n_nodes")]
    pub fn n_nodes(&self) -> usize {
        self.store.n_nodes()
    }

    /// The operations in order, each after all that it depends on (`ggml_graph_node`). A scheduler's devices may
    /// compute them in another order of this kind.
    #[doc(alias = "ggml_graph_node")]
    #[doc(alias = "ggml_graph_nodes")]
    pub fn nodes(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.entries().iter().filter(|e| e.kind == Kind::Node).map(|e| {
            // SAFETY: entries live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(e.ptr) }
        })
    }

    /// The inputs, weights and states that the operations depend on.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.relu(ctx.input("x", DType::F32, [2])?)?;
    /// assert_eq!(ctx.graph([y])?.leaves().map(|t| t.name()).collect::<Vec<_>>(), ["x"]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    pub fn leaves(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.entries().iter().filter(|e| e.kind != Kind::Node).map(|e| {
            // SAFETY: entries live for 'c, which outlives the borrow of the graph.
            unsafe { Tensor::new(e.ptr) }
        })
    }

    /// The operands of `t`, in order; none for leaves and for tensors that are not part of the graph. The operands are
    /// always those that `t` was built from, even while the scheduler uses copies on other devices.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let [a, b] = [ctx.input("a", DType::F32, [2])?, ctx.input("b", DType::F32, [2])?];
    /// let sum = ctx.add(a, b)?;
    /// assert_eq!(ctx.graph([sum])?.sources(sum).map(|t| t.name()).collect::<Vec<_>>(), ["a", "b"]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    pub fn sources(&self, t: Tensor<'_>) -> impl Iterator<Item = Tensor<'_>> {
        let entry = self.entries().position(t.ptr()).and_then(|i| self.entries().get(i));
        entry.into_iter().flat_map(|e| self.entries().srcs(e)).map(|(_, ptr)| {
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
        callback::check_reentry("Graph::print")?;
        log::public(|| {
            // SAFETY: the graph is live, and so are its tensors, which C reads: dimensions, names, flags. C keeps nothing.
            unsafe { guarded!(call, sys::ggml_graph_print(self.as_ptr())) }
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_cgraph {
        self.store.as_ptr()
    }

    /// Fails in user code that must not call ggml, and within the closure of a running computation that uses one of the
    /// graph's tensors.
    pub(crate) fn check_free(&self, call: &'static str) -> Result<()> {
        callback::check_reentry(call)?;
        if !any_in_use() {
            return Ok(());
        }
        let used = self.entries().iter().find(|e| e.is_allocated_by_graph() && e.ptr.is_in_use());
        used.map_or(Ok(()), |e| Err(Error::InUse { call, tensor: e.ptr.info() }))
    }

    /// Checks in debug builds that headers are as their builders left them, and operations in their order
    /// (`alloc/placement.rs`).
    pub(crate) fn debug_assert_as_built(&self) {
        if cfg!(debug_assertions) {
            assert!(self.store.is_in_order(), "a device's order of the operations");
            for e in self.entries().iter().filter(|e| e.is_allocated_by_graph()) {
                assert!(e.ptr.is_as_built(e.views_placed()), "the memory of {}", e.ptr.info());
                let srcs = self.entries().srcs(e).all(|(i, src)| e.ptr.source(i) == Some(src));
                assert!(srcs && e.ptr.source_mask() == e.mask, "the sources of {}", e.ptr.info());
            }
        }
    }

    pub(crate) fn entries(&self) -> &Entries {
        &self.store.entries
    }
}

debug!(Graph<'_>, |this| nodes = &this.n_nodes(), tensors = &this.entries().len());
