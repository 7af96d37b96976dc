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
    /// The backend of a meta backend's member. ggml exports this function, but declares it only in an internal header.
    fn ggml_backend_meta_simple_backend(meta: *mut sys::ggml_backend, index: usize) -> *mut sys::ggml_backend;
}

/// A live backend that this value alone frees.
pub(super) struct RawBackend {
    raw: NonNull<sys::ggml_backend>,
    pub(super) leaked: bool,
}

// SAFETY: a backend has no thread affinity; `&mut` keeps it on one thread at a time (docs/safety.md, "Threads").
unsafe impl Send for RawBackend {}

impl RawBackend {
    pub(super) fn init(device: Device, params: Option<&CStr>) -> Result<Self> {
        // C doesn't check whether the members of a meta device start, so each member is first started once to try it.
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

    pub(super) fn name(&self) -> String {
        // SAFETY: the backend is live by the type's invariant, and so is its name.
        unsafe { ffi::text_of(sys::ggml_backend_name, self.as_ptr()) }
    }

    /// Makes room, in the buffers of these states, for the views of a graph that will be allocated. On a meta device, C
    /// frees the headers of earlier views when it computes a graph that uses the buffers, even an empty one.
    pub(super) fn renew_views(&mut self, states: &mut [*mut sys::ggml_tensor]) -> Result<sys::ggml_status> {
        let mut graph = no_nodes(states);
        let graph = (&raw mut graph).cast();
        // SAFETY: the backend is live by the type's invariant; `&mut` excludes other threads. The graph and its list of
        // leaves, which are tensors with memory, live during the call. C keeps nothing of a graph without operations.
        unsafe { guarded!(call, sys::ggml_backend_graph_compute_async(self.as_ptr(), graph)) }
    }

    pub(super) fn synchronize(&mut self) -> Result<()> {
        // SAFETY: the backend is live by the type's invariant; `&mut` excludes other threads.
        unsafe { guarded!(call, sys::ggml_backend_synchronize(self.as_ptr())) }
    }

    /// Waits as [`RawBackend::synchronize`] does, but never panics, and works in user code, too.
    pub(super) fn wait_idle(&mut self) -> Result<()> {
        // SAFETY: the backend is live by the type's invariant; `&mut` excludes other threads.
        unsafe { guarded!(reentrant, sys::ggml_backend_synchronize(self.as_ptr())) }
    }

    /// Sets a CPU backend's abort callback.
    pub(super) fn set_abort(
        &mut self,
        cpu: Registry,
        callback: sys::ggml_abort_callback,
        user: *mut c_void,
    ) -> Result<()> {
        cpu.call(named!(c"ggml_backend_set_abort_callback" as ggml_backend_set_abort_callback_t), |set| {
            // SAFETY: the backend is a live CPU backend. It keeps `user`, which its owner drops after the backend or
            // replaces here.
            unsafe { set(self.as_ptr(), callback, user) }
        })
    }

    /// Makes a CPU backend use reference kernels only, or not.
    pub(super) fn set_use_ref(&mut self, cpu: Registry, on: bool) -> Result<()> {
        cpu.call(named!(c"ggml_backend_cpu_set_use_ref" as ggml_backend_cpu_set_use_ref(_, _)), |set| {
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

    /// Makes a CPU backend use `pool`, which must be NULL, or live as long as the backend uses it.
    pub(super) fn set_pool(&mut self, cpu: Registry, pool: *mut sys::ggml_threadpool) -> Result<()> {
        cpu.call(named!(c"ggml_backend_cpu_set_threadpool" as ggml_backend_cpu_set_threadpool(_, _)), |set| {
            // SAFETY: backend and pool are live; the owner of both drops the backend first. A replaced pool is still
            // alive and idle; this call only pauses it.
            unsafe { set(self.as_ptr(), pool) }
        })
    }

    /// Sets a CPU or BLAS backend's number of threads. A CPU backend's pool must have as many.
    pub(super) fn set_n_threads(&mut self, registry: Registry, n: usize) -> Result<()> {
        // SAFETY: the backend is live by the type's invariant; the caller passes the registry of the backend's device.
        unsafe { set_n_threads(registry, self.as_ptr(), n) }
    }

    /// Sets the number of threads that the CPU members of a meta backend start for each graph.
    pub(super) fn set_member_threads(&mut self, members: &[Device], n: usize) -> Result<()> {
        for (i, device) in members.iter().enumerate().filter(|(_, d)| d.device_type() == DeviceType::Cpu) {
            let Some(registry) = device.registry() else { continue };
            let member = guard::call("ggml_backend_meta_simple_backend", || {
                // SAFETY: `self` is a live meta backend of these members, so `i` is in bounds; the result lives as long
                // as it.
                unsafe { ggml_backend_meta_simple_backend(self.as_ptr(), i) }
            })?;
            // SAFETY: `member` lives as long as the meta backend; the registry is its device's registry.
            unsafe { set_n_threads(registry, member, n) }?;
        }
        Ok(())
    }
}

/// # Safety
///
/// The backend must be live, a CPU or BLAS backend, and of this registry.
unsafe fn set_n_threads(registry: Registry, backend: *mut sys::ggml_backend, n: usize) -> Result<()> {
    let n = c_int::try_from(n).unwrap_or(c_int::MAX);
    registry.call(named!(c"ggml_backend_set_n_threads" as ggml_backend_set_n_threads_t), |set| {
        // SAFETY: the backend is live and of that registry, by this function's `# Safety`; C sets a field.
        unsafe { set(backend, n) }
    })
}

impl Drop for RawBackend {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        // SAFETY: the backend is live and ours by the type's invariant, and not used after this.
        unsafe { guarded!(free, sys::ggml_backend_free(self.as_ptr())) };
    }
}

/// A live thread pool that this value alone frees.
pub(super) struct RawPool {
    pub(super) raw: NonNull<sys::ggml_threadpool>,
    pub(super) cpu: Registry,
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
        // The library that made the pool has this function, too. If it had not, leaking the threads would be safe.
        let Ok(free) = self.cpu.function(named!(c"ggml_threadpool_free" as ggml_threadpool_free(_))) else { return };
        let raw = self.raw.as_ptr();
        guard::free("ggml_threadpool_free", || {
            // SAFETY: the pool is live and ours by the type's invariant; the backend that used it is dropped or uses
            // another pool.
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
        // SAFETY: the event is live and ours; no queue refers to the event, since its backend would hold a reference.
        unsafe { guarded!(free, sys::ggml_backend_event_free(self.as_ptr())) };
    }
}
