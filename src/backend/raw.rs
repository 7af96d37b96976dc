//! Owns C backends, CPU thread pools and events. No other file frees one.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use super::threads::Threads;
use crate::device::named::named;
use crate::device::{Device, DeviceType, Registry, meta};
use crate::entries::no_nodes;
use crate::error::Result;
use crate::guard::guarded;
use crate::{ffi, guard};

unsafe extern "C-unwind" {
    /// A member's backend. ggml exports this function, but declares it only in an internal header.
    fn ggml_backend_meta_simple_backend(meta: *mut sys::ggml_backend, index: usize) -> *mut sys::ggml_backend;
}

/// A live backend that this value alone frees.
pub(super) struct RawBackend {
    raw: NonNull<sys::ggml_backend>,
    leaked: bool,
}

// SAFETY: a backend has no thread affinity; `&mut` keeps it on one thread at a time (docs/safety.md, "Threads").
unsafe impl Send for RawBackend {}

impl RawBackend {
    pub(super) fn init(device: Device, params: Option<&CStr>) -> Result<Self> {
        // C doesn't check whether the members start, so try them first.
        for &member in meta::members(device) {
            drop(Self::init(member, None)?);
        }
        let params = params.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: devices are never freed, `params` lives during the call; the result is ours.
        let raw = unsafe { guarded!(new, sys::ggml_backend_dev_init(device.as_ptr(), params)) }
            .map_err(guard::or_out_of_memory)
            .map_err(|error| device.check_alive().err().unwrap_or(error))?;
        let this = Self { raw, leaked: false };
        device.check_alive()?;
        Ok(this)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ggml_backend {
        self.raw.as_ptr()
    }

    /// Keeps the drop from freeing the C object.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
    }

    pub(super) fn is_leaked(&self) -> bool {
        self.leaked
    }

    pub(super) fn name(&self) -> String {
        // SAFETY: live by the type's invariant; the text is copied at once.
        let text = unsafe { sys::ggml_backend_name(self.as_ptr()) };
        // SAFETY: NULL, or the C string from above.
        unsafe { ffi::string(text) }
    }

    /// Makes room for the views of a graph that will be allocated, in the buffers of these states: if this is a meta
    /// device's, C frees headers of earlier views when it computes a graph that uses the buffers, even an empty one.
    pub(super) fn renew_views(&mut self, states: &mut [*mut sys::ggml_tensor]) -> Result<sys::ggml_status> {
        let mut graph = no_nodes(states);
        let graph = (&raw mut graph).cast();
        // SAFETY: live by the type's invariant; `&mut` excludes other threads. The graph and its list of leaves, which are
        // tensors with memory, live during the call. C keeps nothing of a graph without operations.
        unsafe { guarded!(call, sys::ggml_backend_graph_compute_async(self.as_ptr(), graph)) }
    }

    pub(super) fn synchronize(&mut self) -> Result<()> {
        // SAFETY: live by the type's invariant; `&mut` excludes other threads.
        unsafe { guarded!(call, sys::ggml_backend_synchronize(self.as_ptr())) }
    }

    /// [`RawBackend::synchronize`] that never panics, and that works in user code, too.
    pub(super) fn settle(&mut self) -> Result<()> {
        // SAFETY: live by the type's invariant; `&mut` excludes other threads.
        unsafe { guarded!(settle, sys::ggml_backend_synchronize(self.as_ptr())) }
    }

    /// Sets a CPU backend's abort callback.
    pub(super) fn set_abort(
        &mut self,
        cpu: Registry,
        callback: sys::ggml_abort_callback,
        user: *mut c_void,
    ) -> Result<()> {
        let set = cpu.function(named!(c"ggml_backend_set_abort_callback" as ggml_backend_set_abort_callback_t))?;
        guard::call("ggml_backend_set_abort_callback", || {
            // SAFETY: a live CPU backend. It keeps `user`, which its owner drops after the backend or replaces here.
            unsafe { set(self.as_ptr(), callback, user) }
        })
    }

    /// Makes a CPU backend use reference kernels only, or not.
    pub(super) fn set_use_ref(&mut self, cpu: Registry, on: bool) -> Result<()> {
        let set = cpu.function(named!(c"ggml_backend_cpu_set_use_ref" as ggml_backend_cpu_set_use_ref(_, _)))?;
        guard::call("ggml_backend_cpu_set_use_ref", || {
            // SAFETY: the backend is a live CPU backend; C sets a field.
            unsafe { set(self.as_ptr(), on) }
        })
    }

    /// Suspends the threads of `pool`, which the backend uses, until the next computation. ggml suspends a pool when it
    /// is replaced, and a computation wakes a suspended one.
    pub(super) fn pause_pool(&mut self, cpu: Registry, pool: &RawPool) -> Result<()> {
        self.set_pool(cpu, ptr::null_mut())?;
        self.set_pool(cpu, pool.raw.as_ptr())
    }

    /// `pool` must be NULL, or live as long as the backend uses it.
    fn set_pool(&mut self, cpu: Registry, pool: *mut sys::ggml_threadpool) -> Result<()> {
        let set = cpu.function(named!(c"ggml_backend_cpu_set_threadpool" as ggml_backend_cpu_set_threadpool(_, _)))?;
        guard::call("ggml_backend_cpu_set_threadpool", || {
            // SAFETY: backend and pool are live; the owner of both drops the backend first. A replaced pool is still
            // alive and idle; this call only pauses it.
            unsafe { set(self.as_ptr(), pool) }
        })
    }

    /// Makes a CPU backend compute on all `n` threads of `pool`.
    pub(super) fn use_pool(&mut self, cpu: Registry, pool: &RawPool, n: usize) -> Result<()> {
        self.set_pool(cpu, pool.raw.as_ptr())?;
        // The pool has `n` threads, so all are in bounds (H26).
        self.set_n_threads(cpu, n)
    }

    /// Sets a CPU or BLAS backend's number of threads. A CPU backend's pool must have as many.
    pub(super) fn set_n_threads(&mut self, registry: Registry, n: usize) -> Result<()> {
        // SAFETY: live by the type's invariant; the caller passes the registry of the backend's device.
        unsafe { set_n_threads(registry, self.as_ptr(), n) }
    }

    /// Sets the number of threads that the CPU members of a meta backend start for each graph.
    pub(super) fn set_member_threads(&mut self, members: &[Device], n: usize) -> Result<()> {
        for (i, device) in members.iter().enumerate().filter(|(_, d)| d.device_type() == DeviceType::Cpu) {
            let Some(registry) = device.registry() else { continue };
            let member = guard::call("ggml_backend_meta_simple_backend", || {
                // SAFETY: a live meta backend of these members, so `i` is in bounds; the result lives as long as it.
                unsafe { ggml_backend_meta_simple_backend(self.as_ptr(), i) }
            })?;
            // SAFETY: live as long as the meta backend; the registry is its device's.
            unsafe { set_n_threads(registry, member, n) }?;
        }
        Ok(())
    }
}

/// # Safety
///
/// The backend must be live, a CPU or BLAS backend, and of this registry.
unsafe fn set_n_threads(registry: Registry, backend: *mut sys::ggml_backend, n: usize) -> Result<()> {
    let set_threads = registry.function(named!(c"ggml_backend_set_n_threads" as ggml_backend_set_n_threads_t))?;
    let n = c_int::try_from(n).unwrap_or(c_int::MAX);
    guard::call("ggml_backend_set_n_threads", || {
        // SAFETY: the backend is live and of that registry, by contract; C sets a field.
        unsafe { set_threads(backend, n) }
    })
}

impl Drop for RawBackend {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        // SAFETY: live and ours by the type's invariant, and not used after this.
        unsafe { guarded!(free, sys::ggml_backend_free(self.as_ptr())) };
    }
}

/// A live thread pool that this value alone frees.
pub(super) struct RawPool {
    raw: NonNull<sys::ggml_threadpool>,
    cpu: Registry,
}

// SAFETY: a pool has no thread affinity; the backend that owns it is used by one thread at a time.
unsafe impl Send for RawPool {}

impl RawPool {
    /// Creates the pool and its threads.
    pub(super) fn start(cpu: Registry, threads: &Threads) -> Result<Self> {
        let new = cpu.function(named!(c"ggml_threadpool_new" as ggml_threadpool_new(_)))?;
        let mut params = threads.raw()?;
        let raw = guard::new("ggml_threadpool_new", || {
            // SAFETY: `params` has a valid number of threads (Threads::raw); C copies what it needs.
            unsafe { new(&raw mut params) }
        })?;
        Ok(Self { raw, cpu })
    }
}

impl Drop for RawPool {
    fn drop(&mut self) {
        // The function exists, as the pool was made. If not, leaking the threads is safe.
        let Ok(free) = self.cpu.function(named!(c"ggml_threadpool_free" as ggml_threadpool_free(_))) else { return };
        let raw = self.raw.as_ptr();
        guard::free("ggml_threadpool_free", || {
            // SAFETY: live and ours by the type's invariant; the backend that used it is dropped or uses another pool.
            unsafe { free(raw) }
        });
    }
}

/// A live event that this value alone frees.
pub(super) struct RawEvent(pub(super) NonNull<sys::ggml_backend_event>);

// SAFETY: an event has no thread affinity (docs/safety.md, "Threads").
unsafe impl Send for RawEvent {}
// SAFETY: only its `Event`, which is not `Sync`, uses it; a backend that holds it only drops it.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    pub(super) fn as_ptr(&self) -> *mut sys::ggml_backend_event {
        self.0.as_ptr()
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        // SAFETY: live and ours; no queue refers to it, since its backend would hold a reference.
        unsafe { guarded!(free, sys::ggml_backend_event_free(self.as_ptr())) };
    }
}
