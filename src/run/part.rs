//! Computes a part of an allocated graph.

use std::ptr::NonNull;

use ggml_sys as sys;

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
        // SAFETY: backend and graph are live; the operations are of a graph that was allocated for this backend, so
        // they and their sources have memory that the backend's device can use. The call waits, so C keeps nothing.
        unsafe { guarded!(compute, sys::ggml_backend_graph_compute(backend.as_ptr(), self.raw.as_ptr())) }
    }
}
