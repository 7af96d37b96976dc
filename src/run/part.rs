//! Computes a part of an allocated graph.

use std::ptr::NonNull;

use ggml_sys as sys;

use crate::backend::Backend;
use crate::context::raw::Pool;
use crate::error::{Error, Result};
use crate::guard;
use crate::header::TensorPtr;

/// Computes these operations of a graph that is allocated for the backend, whose headers have its placement and whose
/// preceding operations were computed. Results are there until other operations need their memory.
pub(super) fn compute(backend: &mut Backend, nodes: &[TensorPtr]) -> Result<sys::ggml_status> {
    const NEW: &str = "ggml_new_graph_custom";
    // SAFETY: a pure function; `grads` is off.
    let pool = Pool::new(unsafe { sys::ggml_graph_overhead_custom(nodes.len(), false) })?;
    let raw = guard::call(NEW, || {
        // SAFETY: the pool is live and was made with the room that a graph of this size takes.
        unsafe { sys::ggml_new_graph_custom(pool.as_ptr(), nodes.len(), false) }
    })?;
    let graph = NonNull::new(raw).ok_or(Error::Null { call: NEW, log: Box::default() })?;
    for node in nodes {
        guard::call("ggml_graph_add_node", || {
            // SAFETY: graph and tensor are live, and the graph has room for all of `nodes`.
            unsafe { sys::ggml_graph_add_node(graph.as_ptr(), node.as_ptr()) }
        })?;
    }
    let raw = backend.as_ptr();
    guard::compute("ggml_backend_graph_compute", || {
        // SAFETY: backend and graph are live; the operations are of a graph that was allocated for this backend, so they
        // and their sources have memory that its device can use. The call waits, so C keeps nothing.
        unsafe { sys::ggml_backend_graph_compute(raw, graph.as_ptr()) }
    })
}
