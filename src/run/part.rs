//! Computes a part of an allocated graph.

use std::ptr::NonNull;

use ggml_sys as sys;

use super::threads;
use crate::backend::Backend;
use crate::context::raw::Pool;
use crate::error::Result;
use crate::guard::guarded;
use crate::header::TensorPtr;

/// A graph of operations that belong to an allocated graph.
pub(crate) struct PartGraph {
    raw: NonNull<sys::ggml_cgraph>,
    /// The graph's memory.
    _pool: Pool,
}

impl PartGraph {
    /// The operations must stay alive as long as the part is used.
    pub(crate) fn new(nodes: &[TensorPtr]) -> Result<Self> {
        // SAFETY: the C function is pure; `grads` is off.
        let pool = Pool::new(unsafe { sys::ggml_graph_overhead_custom(nodes.len(), false) })?;
        // SAFETY: the pool is live and was made with the room that a graph of this size takes.
        let raw = unsafe { guarded!(new, sys::ggml_new_graph_custom(pool.as_ptr(), nodes.len(), false)) }?;
        for node in nodes {
            // SAFETY: graph and tensor are live, and the graph has room for all of `nodes`.
            unsafe { guarded!(call, sys::ggml_graph_add_node(raw.as_ptr(), node.as_ptr())) }?;
        }
        Ok(Self { raw, _pool: pool })
    }

    /// Computes the operations, whose graph is allocated for the backend, and waits for them. Their headers must have
    /// its placement, and the preceding operations must have been computed. Results stay until later operations reuse
    /// their memory.
    pub(crate) fn compute(&mut self, backend: &mut Backend) -> Result<sys::ggml_status> {
        // SAFETY: the operations are of a graph that is allocated for the backend, and their headers have its placement (the
        // caller's Live).
        unsafe { threads::compute_raw(backend, self.raw.as_ptr()) }
    }
}
