//! Computes a part of an allocated graph.

use ggml_sys as sys;

use crate::backend::Backend;
use crate::context::raw::Pool;
use crate::error::Result;
use crate::guard::guarded;
use crate::header::TensorPtr;

/// Computes these operations of a graph that is allocated for the backend. The graph's headers must have its placement,
/// and the preceding operations must have been computed. Results stay until later operations reuse their memory.
pub(crate) fn compute(backend: &mut Backend, nodes: &[TensorPtr]) -> Result<sys::ggml_status> {
    // SAFETY: the C function is pure; `grads` is off.
    let pool = Pool::new(unsafe { sys::ggml_graph_overhead_custom(nodes.len(), false) })?;
    // SAFETY: the pool is live and was made with the room that a graph of this size takes.
    let graph = unsafe { guarded!(new, sys::ggml_new_graph_custom(pool.as_ptr(), nodes.len(), false)) }?;
    for node in nodes {
        // SAFETY: graph and tensor are live, and the graph has room for all of `nodes`.
        unsafe { guarded!(call, sys::ggml_graph_add_node(graph.as_ptr(), node.as_ptr())) }?;
    }
    let raw = backend.as_ptr();
    // SAFETY: backend and graph are live; the operations are of a graph that was allocated for this backend, so they
    // and their sources have memory that the backend's device can use. The call waits, so C keeps nothing.
    unsafe { guarded!(compute, sys::ggml_backend_graph_compute(raw, graph.as_ptr())) }
}
