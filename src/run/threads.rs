//! How many of a CPU backend's threads compute a graph.
//!
//! Beside other work, threads mostly wait for each other. So a busy machine gives one thread to graphs that it would otherwise
//! share. Results must not tell: an operation whose last bits depend on the number of threads still gets all.
//!
//! Contention is only seen where one CPU backend computes, and nothing of the user's: elsewhere the calling thread waits for
//! other things, too.

use std::cell::Cell;
use std::ptr::NonNull;
use std::time::Instant;

use ggml_sys as sys;

use crate::backend::Backend;
use crate::error::Result;
use crate::graph::{Graph, Team, depends_on_threads};
use crate::guard::guarded;
use crate::header::TensorPtr;

/// Chooses the threads of a computation, whatever else the machine does.
pub(super) fn choose(backend: &mut Backend, graph: &Graph<'_>) -> Result<()> {
    let Some(threads) = backend.can_compute_alone() else { return Ok(()) };
    backend.compute_alone(graph.team(threads) == Team::One)
}

/// Computes an allocated graph, whose headers have its placement, by a backend whose threads were chosen, and waits for the
/// result.
pub(super) fn compute(backend: &mut Backend, graph: &Graph<'_>) -> Result<sys::ggml_status> {
    let raw = graph.as_ptr();
    if backend.can_compute_alone().is_none_or(|threads| graph.team(threads) != Team::Either) {
        // SAFETY: the graph is allocated for the backend, and its headers have its placement (the caller's Live).
        return unsafe { compute_raw(backend, raw) };
    }
    let began = Instant::now();
    let status = if backend.is_busy(began) {
        compute_beside(backend, graph)
    } else {
        // SAFETY: as above.
        unsafe { compute_raw(backend, raw) }
    };
    backend.computed_since(began);
    status
}

/// On a busy machine, the calling thread computes alone what it can.
fn compute_beside(backend: &mut Backend, graph: &Graph<'_>) -> Result<sys::ggml_status> {
    let by_all = |node: &Cell<*mut sys::ggml_tensor>| {
        // SAFETY: the graph's operations are live while it is.
        NonNull::new(node.get()).is_some_and(|t| depends_on_threads(unsafe { TensorPtr::new(t) }))
    };
    for nodes in graph.store.nodes().chunk_by(|a, b| by_all(a) == by_all(b)) {
        backend.compute_alone(!nodes.first().is_some_and(by_all))?;
        let mut part = graph.store.part(nodes);
        // SAFETY: the part's lists are those of the graph, which is allocated for the backend, and the operations before it
        // have been computed.
        let status = unsafe { compute_raw(backend, (&raw mut part).cast()) }?;
        if status != sys::GGML_STATUS_SUCCESS {
            return Ok(status);
        }
    }
    Ok(sys::GGML_STATUS_SUCCESS)
}

/// Computes a graph, or a part of one, and waits for the result.
///
/// # Safety
///
/// The graph must be allocated for the backend, whose device runs the operations (`GraphAllocator::check`), and its headers
/// must have its placement.
pub(super) unsafe fn compute_raw(backend: &mut Backend, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
    // SAFETY: backend and graph are live, and the tensors have memory that the backend's device can use (this function's
    // `# Safety`). The call waits, so C keeps nothing.
    unsafe { guarded!(compute, sys::ggml_backend_graph_compute(backend.as_ptr(), graph)) }
}
