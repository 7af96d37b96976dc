//! Owns a C scheduler. No other file frees one.

use std::ffi::c_void;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::builder::Settings;
use crate::backend::{Backend, BackendId};
use crate::error::Result;
use crate::guard::guarded;
use crate::header::TensorPtr;
use crate::{guard, list};

/// A live scheduler that this value alone frees.
pub(crate) struct RawSched {
    raw: NonNull<sys::ggml_backend_sched>,
    /// The backends with which the scheduler was made.
    over: Vec<BackendId>,
    /// The maximum number of tensors in a graph.
    pub(crate) capacity: usize,
}

// SAFETY: a scheduler has no thread affinity; `&mut` keeps it on one thread at a time (docs/safety.md, "Threads").
unsafe impl Send for RawSched {}

impl RawSched {
    /// A scheduler with room for graphs of `tensors` tensors.
    ///
    /// # Safety
    ///
    /// Once one of the backends is dropped, the result may only be dropped. Each backend must support the buffer type
    /// that the settings have for it.
    pub(crate) unsafe fn new(backends: &[Backend], settings: &Settings, tensors: usize) -> Result<Self> {
        let capacity = tensors.next_multiple_of(1024);
        // C doesn't check its allocations, so memory of their size is first allocated here, and freed again.
        drop(list::reserved::<u8>(settings.bytes_of_tables(capacity, backends.len()), "the scheduler's tables")?);
        let mut raws: Vec<_> = backends.iter().map(Backend::as_ptr).collect();
        let &Settings { parallel, op_offload, .. } = settings;
        let mut bufts: Vec<_> = settings.buffer_types(backends).iter().map(|buft| buft.as_ptr()).collect();
        let n = i32::try_from(raws.len()).unwrap_or(i32::MAX);
        // SAFETY: the backends outlive each use (this function's `# Safety`), are 1 to 16, and the last is a CPU
        // (builder::check). Each supports its buffer type (this function's `# Safety`). C copies both arrays.
        let raw = unsafe {
            guarded!(
                new,
                sys::ggml_backend_sched_new(raws.as_mut_ptr(), bufts.as_mut_ptr(), n, capacity, parallel, op_offload)
            )
        }
        .map_err(guard::or_out_of_memory)?;
        Ok(Self { raw, over: backends.iter().map(Backend::id).collect(), capacity })
    }

    /// Whether the scheduler was made with these backends.
    pub(crate) fn is_over(&self, backends: &[Backend]) -> bool {
        backends.iter().map(Backend::id).eq(self.over.iter().copied())
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_backend_sched {
        self.raw.as_ptr()
    }

    /// Pins tensors to the scheduler's backends in the next graph that is planned or allocated.
    pub(crate) fn pin(&mut self, pins: &[(TensorPtr, *mut sys::ggml_backend)]) -> Result<()> {
        pins.iter().try_for_each(|&(t, backend)| {
            // SAFETY: scheduler and tensor are live, the scheduler's table has room for all of the graph's tensors
            // (Splitter::fit), and the backend is one of the scheduler's, which C asserts (Splitter::pinned takes it
            // from the same list).
            unsafe { guarded!(call, sys::ggml_backend_sched_set_tensor_backend(self.as_ptr(), t.as_ptr(), backend)) }
        })
    }

    /// Writes the memory that `graph` would need on each backend into `sizes`. Drops pins. Leaves C's allocator with a
    /// plan but without memory for it (H21): the caller plans again before it allocates.
    pub(crate) fn reserve_size(&mut self, graph: *mut sys::ggml_cgraph, sizes: &mut [usize]) -> Result<()> {
        // SAFETY: scheduler and graph are live, and the graph fits, as for `reserve`; C writes one size for each
        // backend, and the caller's list has as many.
        unsafe { guarded!(call, sys::ggml_backend_sched_reserve_size(self.as_ptr(), graph, sizes.as_mut_ptr())) }
    }

    /// Assigns the operations of `graph` to backends, until the next reset (`ggml_backend_sched_split_graph`).
    pub(crate) fn split(&mut self, graph: *mut sys::ggml_cgraph) -> Result<()> {
        // SAFETY: scheduler and graph are live, and the graph fits, as for `reserve`.
        unsafe { guarded!(call, sys::ggml_backend_sched_split_graph(self.as_ptr(), graph)) }
    }

    /// Plans memory for `graph`, whose tensors have none. Returns `false` if it could not be allocated.
    pub(crate) fn reserve(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        // SAFETY: scheduler and graph are live, and the graph fits (Splitter::fit). C leaves pointers to its own
        // tensors in the graph, which the caller's AsBuilt removes, and keeps none to the graph's tensors.
        unsafe { guarded!(call, sys::ggml_backend_sched_reserve(self.as_ptr(), graph)) }
    }

    /// Gives `graph` the planned memory. Returns `false` if it could not be allocated.
    pub(crate) fn alloc(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        // SAFETY: scheduler and graph are live, and the graph fits, as for `reserve`; no graph is allocated now (the
        // caller reset the scheduler). C keeps pointers to the graph until the next reset, and follows them only when
        // it computes.
        unsafe { guarded!(call, sys::ggml_backend_sched_alloc_graph(self.as_ptr(), graph)) }
    }

    /// Computes the allocated graph, and waits for the result.
    pub(crate) fn compute(&mut self, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        // SAFETY: `graph` is the allocated one (the caller holds its Live), so its tensors are live and have
        // memory. C keeps nothing new.
        unsafe { guarded!(compute, sys::ggml_backend_sched_graph_compute(self.as_ptr(), graph)) }
    }

    /// Starts to compute the allocated graph. The caller synchronises before it uses or frees anything of the graph.
    pub(crate) fn compute_async(&mut self, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        // SAFETY: `graph` is the allocated one, as for `compute`; what devices still read or write lives until the
        // caller has synchronised.
        unsafe { guarded!(compute, sys::ggml_backend_sched_graph_compute_async(self.as_ptr(), graph)) }
    }

    /// Sets the callback that sees results in the next computation, or clears it.
    pub(crate) fn set_callback(&mut self, f: sys::ggml_backend_sched_eval_callback, user: *mut c_void) {
        // SAFETY: the scheduler is live by the type's invariant. C keeps callback and user data until the next call of
        // this function; the caller clears them before either can dangle.
        unsafe { sys::ggml_backend_sched_set_eval_callback(self.as_ptr(), f, user) };
    }

    /// Sets the callback that copies weights from host memory in the next computation, or clears it.
    #[cfg(ggml_0_28)]
    pub(crate) fn set_copy_callback(&mut self, f: sys::ggml_backend_sched_copy_callback, user: *mut c_void) {
        // SAFETY: the scheduler is live by the type's invariant. C keeps callback and user data until the next call of
        // this function; the caller clears them before either can dangle.
        unsafe { sys::ggml_backend_sched_set_copy_callback(self.as_ptr(), f, user) };
    }

    /// Drops the allocated graph.
    pub(crate) fn reset(&mut self) -> Result<()> {
        // SAFETY: the scheduler is live by the type's invariant.
        unsafe { guarded!(call, sys::ggml_backend_sched_reset(self.as_ptr())) }
    }

    /// Waits until all backends are idle.
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        // SAFETY: the scheduler is live by the type's invariant.
        unsafe { guarded!(call, sys::ggml_backend_sched_synchronize(self.as_ptr())) }
    }

    /// The number of splits of the last planned graph.
    pub(crate) fn n_splits(&self) -> usize {
        // SAFETY: the scheduler is live by the type's invariant; the call only reads it.
        usize::try_from(unsafe { sys::ggml_backend_sched_get_n_splits(self.as_ptr()) }).unwrap_or(0)
    }

    /// How many copies there are of each input and of each tensor copied between devices.
    pub(crate) fn n_copies(&self) -> usize {
        // SAFETY: the scheduler is live by the type's invariant; the call only reads it.
        usize::try_from(unsafe { sys::ggml_backend_sched_get_n_copies(self.as_ptr()) }).unwrap_or(1)
    }

    /// The backend that a tensor of the allocated graph was assigned to.
    pub(crate) fn backend_of(&self, t: TensorPtr) -> *mut sys::ggml_backend {
        // SAFETY: the scheduler is live; `t` is one of the allocated graph's tensors (the caller's check), so C finds
        // the tensor and doesn't add it to its table.
        unsafe { sys::ggml_backend_sched_get_tensor_backend(self.as_ptr(), t.as_ptr()) }
    }

    /// Bytes of compute memory on `backend`, which is one of the scheduler's.
    pub(crate) fn buffer_size(&self, backend: &Backend) -> Result<usize> {
        // SAFETY: scheduler and backend are live, and the backend is one of the scheduler's, which C asserts.
        unsafe { guarded!(call, sys::ggml_backend_sched_get_buffer_size(self.as_ptr(), backend.as_ptr())) }
    }
}

impl Drop for RawSched {
    fn drop(&mut self) {
        // SAFETY: the scheduler is live and ours by the type's invariant. C frees its memory and events without using
        // the backends, which may be gone already.
        unsafe { guarded!(free, sys::ggml_backend_sched_free(self.as_ptr())) };
    }
}
