//! The owner of a C scheduler, and the only file that frees one.

use std::ffi::c_void;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::builder::Settings;
use crate::backend::{Backend, Id};
use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::{guard, log};

/// A live scheduler that nothing else frees.
pub(super) struct RawSched {
    raw: NonNull<sys::ggml_backend_sched>,
    /// The backends that it was made over.
    over: Vec<Id>,
    /// The most tensors that a graph may have.
    pub(super) capacity: usize,
}

// SAFETY: a scheduler belongs to no thread; `&mut` keeps it on one at a time (docs/safety.md, "Threads").
unsafe impl Send for RawSched {}

impl RawSched {
    /// A scheduler for graphs of at most `capacity` tensors.
    ///
    /// # Safety
    ///
    /// When one of the backends is gone, the result may be dropped, and not be used otherwise. Each must support the type of
    /// memory that the settings have for it.
    pub(super) unsafe fn new(backends: &[Backend], settings: &Settings, capacity: usize) -> Result<Self> {
        const CALL: &str = "ggml_backend_sched_new";
        let mark = log::mark();
        let mut raws: Vec<_> = backends.iter().map(Backend::as_ptr).collect();
        let &Settings { parallel, op_offload, .. } = settings;
        let mut bufts: Vec<_> = settings.buffer_types(backends).iter().map(|buft| buft.as_ptr()).collect();
        let n = i32::try_from(raws.len()).unwrap_or(i32::MAX);
        let raw = guard::call(CALL, || {
            // SAFETY: the backends are there at each use (by contract), are 1 to 16, and the last is a CPU (builder::check).
            // Each supports its type of memory (by contract). C copies both arrays.
            unsafe {
                sys::ggml_backend_sched_new(raws.as_mut_ptr(), bufts.as_mut_ptr(), n, capacity, parallel, op_offload)
            }
        })
        .map_err(guard::or_out_of_memory)?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::Null { call: CALL, log: log::since(mark) })?;
        Ok(Self { raw, over: backends.iter().map(Backend::id).collect(), capacity })
    }

    /// Whether these are the backends that it was made over.
    pub(super) fn is_over(&self, backends: &[Backend]) -> bool {
        backends.iter().map(Backend::id).eq(self.over.iter().copied())
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ggml_backend_sched {
        self.raw.as_ptr()
    }

    /// Has tensors lie, and operations run, on backends of the scheduler's in the next graph that is planned or allocated.
    pub(super) fn pin(&mut self, pins: &[(TensorPtr, *mut sys::ggml_backend)]) -> Result<()> {
        pins.iter().try_for_each(|&(t, backend)| {
            guard::call("ggml_backend_sched_set_tensor_backend", || {
                // SAFETY: scheduler and tensor are live, its table has room for all of the graph's (Sched::fit), and the
                // backend is one that it knows (the caller's check), which C asserts.
                unsafe { sys::ggml_backend_sched_set_tensor_backend(self.as_ptr(), t.as_ptr(), backend) }
            })
        })
    }

    /// The memory that `graph` would need on each backend, into `sizes`. Forgets pins. Leaves the allocator with a plan
    /// but without the memory for it (H21): the caller plans again before it allocates.
    pub(super) fn reserve_size(&mut self, graph: *mut sys::ggml_cgraph, sizes: &mut [usize]) -> Result<()> {
        guard::call("ggml_backend_sched_reserve_size", || {
            // SAFETY: as for `reserve`; there is a size for each backend (the caller's list), which is all that C writes.
            unsafe { sys::ggml_backend_sched_reserve_size(self.as_ptr(), graph, sizes.as_mut_ptr()) }
        })
    }

    /// Says where operations of `graph` would run, until the next reset (`ggml_backend_sched_split_graph`).
    pub(super) fn split(&mut self, graph: *mut sys::ggml_cgraph) -> Result<()> {
        guard::call("ggml_backend_sched_split_graph", || {
            // SAFETY: as for `reserve`.
            unsafe { sys::ggml_backend_sched_split_graph(self.as_ptr(), graph) }
        })
    }

    /// Plans memory for `graph`, whose tensors have none. `false` where it could not be had.
    pub(super) fn reserve(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        guard::call("ggml_backend_sched_reserve", || {
            // SAFETY: scheduler and graph are live, and the graph fits (Sched::fit). C leaves pointers to its own
            // tensors in the graph, which the caller takes out, and none to the graph's.
            unsafe { sys::ggml_backend_sched_reserve(self.as_ptr(), graph) }
        })
    }

    /// Gives `graph` the memory that was planned. `false` where it could not be had.
    pub(super) fn alloc(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        guard::call("ggml_backend_sched_alloc_graph", || {
            // SAFETY: as for `reserve`; no graph is allocated now (the caller reset the scheduler). C keeps pointers to
            // the graph until the next reset, and follows them only when it computes.
            unsafe { sys::ggml_backend_sched_alloc_graph(self.as_ptr(), graph) }
        })
    }

    /// Computes the graph that is allocated, and waits for it.
    pub(super) fn compute(&mut self, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        guard::compute("ggml_backend_sched_graph_compute", || {
            // SAFETY: `graph` is the one that is allocated (the caller holds its Bound), so its tensors live and have
            // memory. C keeps nothing new.
            unsafe { sys::ggml_backend_sched_graph_compute(self.as_ptr(), graph) }
        })
    }

    /// Begins to compute the graph that is allocated. The caller synchronises before anything of it is used or goes.
    pub(super) fn compute_async(&mut self, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        guard::compute("ggml_backend_sched_graph_compute_async", || {
            // SAFETY: as for `compute`; what devices still work on lives until the caller has synchronised.
            unsafe { sys::ggml_backend_sched_graph_compute_async(self.as_ptr(), graph) }
        })
    }

    /// Makes the next computation call `f` with `user` for its nodes, or none.
    pub(super) fn set_callback(&mut self, f: sys::ggml_backend_sched_eval_callback, user: *mut c_void) {
        // SAFETY: live by the type's invariant. C keeps both until the next such call; the caller clears them before
        // either can dangle.
        unsafe { sys::ggml_backend_sched_set_eval_callback(self.as_ptr(), f, user) };
    }

    /// Forgets the allocated graph.
    pub(super) fn reset(&mut self) -> Result<()> {
        guard::call("ggml_backend_sched_reset", || {
            // SAFETY: live by the type's invariant.
            unsafe { sys::ggml_backend_sched_reset(self.as_ptr()) }
        })
    }

    /// Waits until all backends are done.
    pub(super) fn synchronize(&mut self) -> Result<()> {
        guard::call("ggml_backend_sched_synchronize", || {
            // SAFETY: live by the type's invariant.
            unsafe { sys::ggml_backend_sched_synchronize(self.as_ptr()) }
        })
    }

    /// How many parts the last planned graph was split into.
    pub(super) fn n_splits(&self) -> usize {
        // SAFETY: live by the type's invariant; the call only reads it.
        usize::try_from(unsafe { sys::ggml_backend_sched_get_n_splits(self.as_ptr()) }).unwrap_or(0)
    }

    /// How many copies there are of inputs and of what is copied between devices.
    pub(super) fn n_copies(&self) -> usize {
        // SAFETY: live by the type's invariant; the call only reads it.
        usize::try_from(unsafe { sys::ggml_backend_sched_get_n_copies(self.as_ptr()) }).unwrap_or(1)
    }

    /// The backend that a tensor of the allocated graph was given to.
    pub(super) fn backend_of(&self, t: TensorPtr) -> *mut sys::ggml_backend {
        // SAFETY: the scheduler is live; `t` is one of the allocated graph's tensors (the caller's check), so it is found
        // rather than added to the table.
        unsafe { sys::ggml_backend_sched_get_tensor_backend(self.as_ptr(), t.as_ptr()) }
    }

    /// Bytes of compute memory on `backend`, which is one of the scheduler's.
    pub(super) fn buffer_size(&self, backend: &Backend) -> Result<usize> {
        guard::call("ggml_backend_sched_get_buffer_size", || {
            // SAFETY: scheduler and backend are live, and the one knows the other.
            unsafe { sys::ggml_backend_sched_get_buffer_size(self.as_ptr(), backend.as_ptr()) }
        })
    }

    /// Leaks the C object: after a failure inside it, freeing it is no longer safe.
    pub(super) fn leak(self) {
        #[expect(clippy::mem_forget, reason = "an interrupted scheduler may hold freed memory")]
        std::mem::forget(self);
    }
}

impl Drop for RawSched {
    fn drop(&mut self) {
        guard::free("ggml_backend_sched_free", || {
            // SAFETY: live and ours by the type's invariant. C frees memory and what it made itself, and asks no backend, so that
            // those may be gone.
            unsafe { sys::ggml_backend_sched_free(self.as_ptr()) }
        });
    }
}
