//! How many of a CPU backend's threads compute a graph.
//!
//! Beside other work, threads mostly wait for each other. So a busy machine gives one thread to graphs that it would otherwise
//! share. Results must not tell: an operation whose last bits depend on the number of threads still gets all.

use std::cell::Cell;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::backend::Backend;
use crate::error::Result;
use crate::graph::{Graph, Team, depends_on_threads};
use crate::guard::guarded;
use crate::header::TensorPtr;

/// Begins a computation of the graph. Returns whether [`compute`] should compute it: the machine is busy, and some operations
/// need all threads.
pub(super) fn begin(backend: &mut Backend, graph: &Graph<'_>) -> Result<bool> {
    let Some(threads) = backend.can_compute_alone() else { return Ok(false) };
    let team = graph.team(threads);
    let is_busy = team == Team::Either && backend.begin();
    let in_parts = is_busy && graph.nodes().any(|t| depends_on_threads(t.ptr()));
    backend.compute_alone(team == Team::One || is_busy && !in_parts)?;
    Ok(in_parts)
}

/// Computes an allocated graph, whose headers have its placement, and waits for the result. The calling thread computes alone,
/// except for operations whose last bits depend on the number of threads.
pub(super) fn compute(backend: &mut Backend, graph: &Graph<'_>) -> Result<sys::ggml_status> {
    let store = &graph.store;
    let by_all = |node: &Cell<*mut sys::ggml_tensor>| {
        // SAFETY: the graph's operations are live while it is.
        NonNull::new(node.get()).is_some_and(|t| depends_on_threads(unsafe { TensorPtr::new(t) }))
    };
    for nodes in store.nodes().chunk_by(|a, b| by_all(a) == by_all(b)) {
        backend.compute_alone(!nodes.first().is_some_and(by_all))?;
        let mut part = store.part(nodes);
        // SAFETY: backend and graph are live. The part's lists are the graph's, whose tensors have memory that the backend's
        // device can use (the caller's Live), and the operations before it have been computed. The call waits, so C keeps
        // nothing.
        let status =
            unsafe { guarded!(compute, sys::ggml_backend_graph_compute(backend.as_ptr(), (&raw mut part).cast())) }?;
        if status != sys::GGML_STATUS_SUCCESS {
            return Ok(status);
        }
    }
    Ok(sys::GGML_STATUS_SUCCESS)
}
