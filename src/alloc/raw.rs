//! The owner of a C graph allocator, and the only file that frees one.

use std::ffi::c_void;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::backend::Backend;
use crate::buffer::BufferType;
use crate::error::{Error, Result};
use crate::guard;

/// A live graph allocator that nothing else frees.
pub(super) struct RawAllocator(NonNull<sys::ggml_gallocr>);

// SAFETY: an allocator belongs to no thread; `&mut` keeps it on one at a time (docs/safety.md, "Threads").
unsafe impl Send for RawAllocator {}

impl RawAllocator {
    pub(super) fn new(buft: BufferType) -> Result<Self> {
        const CALL: &str = "ggml_gallocr_new";
        let raw = guard::call(CALL, || {
            // SAFETY: buffer types live for ever; the result is ours.
            unsafe { sys::ggml_gallocr_new(buft.as_ptr()) }
        })?;
        NonNull::new(raw).map(Self).ok_or(Error::Null { call: CALL, log: Box::default() })
    }

    fn as_ptr(&self) -> *mut sys::ggml_gallocr {
        self.0.as_ptr()
    }

    /// Plans memory for `graph`. `false` where it could not be had.
    pub(super) fn reserve(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        guard::call("ggml_gallocr_reserve", || {
            // SAFETY: allocator and graph are live; C keeps no pointer to the graph's tensors.
            unsafe { sys::ggml_gallocr_reserve(self.as_ptr(), graph) }
        })
    }

    /// Gives `graph`, for which memory is planned, its memory. `false` where it could not be had.
    pub(super) fn alloc(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        guard::call("ggml_gallocr_alloc_graph", || {
            // SAFETY: allocator and graph are live, and the plan is this graph's (GraphAllocator::prepare). The tensors
            // point into the allocator's buffer until the caller's Bound takes that back.
            unsafe { sys::ggml_gallocr_alloc_graph(self.as_ptr(), graph) }
        })
    }

    pub(super) fn buffer_size(&self) -> Result<usize> {
        guard::call("ggml_gallocr_get_buffer_size", || {
            // SAFETY: live by the type's invariant; a new allocator has one buffer, number 0.
            unsafe { sys::ggml_gallocr_get_buffer_size(self.as_ptr(), 0) }
        })
    }

    /// Leaks the C object: after a failure inside it, freeing it is no longer safe.
    pub(super) fn leak(self) {
        #[expect(clippy::mem_forget, reason = "an interrupted allocator may hold freed memory")]
        std::mem::forget(self);
    }
}

impl Drop for RawAllocator {
    fn drop(&mut self) {
        guard::free("ggml_gallocr_free", || {
            // SAFETY: live and ours by the type's invariant.
            unsafe { sys::ggml_gallocr_free(self.as_ptr()) }
        });
    }
}

/// A live graph plan that nothing else frees.
///
/// # Invariants
///
/// The backend and the graph that it was made of are alive.
pub(super) struct RawPlan {
    raw: NonNull<c_void>,
    backend: *mut sys::ggml_backend,
}

impl RawPlan {
    /// # Safety
    ///
    /// The backend must be one that makes plans. It, its threads, its closure and the graph, whose tensors have memory that
    /// the backend's device can use, must stay as they are for as long as the result lives.
    pub(super) unsafe fn new(backend: &mut Backend, graph: *mut sys::ggml_cgraph) -> Result<Self> {
        const CALL: &str = "ggml_backend_graph_plan_create";
        let backend = backend.as_ptr();
        let raw = guard::call(CALL, || {
            // SAFETY: backend and graph are live, and the backend makes plans, by contract. C keeps a copy of the graph's
            // head, which points to its lists, the threads and the closure; the result is ours.
            unsafe { sys::ggml_backend_graph_plan_create(backend, graph) }
        })?;
        let raw = NonNull::new(raw).ok_or(Error::Null { call: CALL, log: Box::default() })?;
        Ok(Self { raw, backend })
    }

    /// Computes the graph: to be called inside `guard::compute`.
    pub(super) fn compute(&self) -> sys::ggml_status {
        // SAFETY: plan, backend and graph are live by the type's invariants. The call waits.
        unsafe { sys::ggml_backend_graph_plan_compute(self.backend, self.raw.as_ptr()) }
    }

    /// Leaks the C object, which an interrupted computation may still refer to.
    pub(super) fn leak(self) {
        #[expect(clippy::mem_forget, reason = "an interrupted computation may still refer to it")]
        std::mem::forget(self);
    }
}

impl Drop for RawPlan {
    fn drop(&mut self) {
        guard::free("ggml_backend_graph_plan_free", || {
            // SAFETY: plan and backend are live by the type's invariants, and the plan is ours.
            unsafe { sys::ggml_backend_graph_plan_free(self.backend, self.raw.as_ptr()) }
        });
    }
}
