//! Owns C graph plans. No other file frees one.

use std::ffi::c_void;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::backend::Backend;
use crate::error::Result;
use crate::guard::guarded;

/// A live graph plan that this value alone frees.
///
/// # Invariants
///
/// The backend and the graph of which the plan was made are alive.
pub(super) struct RawPlan {
    raw: NonNull<c_void>,
    backend: *mut sys::ggml_backend,
}

impl RawPlan {
    /// # Safety
    ///
    /// The backend must be one that makes plans. The backend, its threads, its abort closure and the graph must not
    /// change while the result lives, and the graph's tensors must have memory that the backend's device can use.
    pub(super) unsafe fn new(backend: &mut Backend, graph: *mut sys::ggml_cgraph) -> Result<Self> {
        let backend = backend.as_ptr();
        // SAFETY: backend and graph are live, and the backend makes plans, by this function's `# Safety`. C copies the
        // graph struct, which points to its lists, the threads and the closure; the result is ours.
        let raw = unsafe { guarded!(new, sys::ggml_backend_graph_plan_create(backend, graph)) }?;
        Ok(Self { raw, backend })
    }

    /// Computes the graph of the plan. It must be called inside `guard::compute`.
    pub(super) fn compute(&self) -> sys::ggml_status {
        // SAFETY: plan, backend and graph are live by the type's invariants. The call waits, so C keeps nothing new.
        unsafe { sys::ggml_backend_graph_plan_compute(self.backend, self.raw.as_ptr()) }
    }
}

impl Drop for RawPlan {
    fn drop(&mut self) {
        // SAFETY: plan and backend are live by the type's invariants, and the plan is ours.
        unsafe { guarded!(free, sys::ggml_backend_graph_plan_free(self.backend, self.raw.as_ptr())) };
    }
}
