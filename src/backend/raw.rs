//! The owners of a C backend, of a CPU thread pool, and of an event, and the only file that frees them.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use super::threads::Threads;
use crate::device::named::named;
use crate::device::{Device, DeviceType, Registry, meta};
use crate::error::{Error, Result};
use crate::{ffi, guard, log};

unsafe extern "C-unwind" {
    /// The backend of a meta backend's member. ggml exports it, and declares it in a header of its own only.
    fn ggml_backend_meta_simple_backend(meta: *mut sys::ggml_backend, index: usize) -> *mut sys::ggml_backend;
}

/// A live backend that nothing else frees.
pub(super) struct RawBackend {
    raw: NonNull<sys::ggml_backend>,
    leaked: bool,
}

// SAFETY: a backend belongs to no thread; `&mut` keeps it on one at a time (docs/safety.md, "Threads").
unsafe impl Send for RawBackend {}

impl RawBackend {
    pub(super) fn init(device: Device, params: Option<&CStr>) -> Result<Self> {
        const CALL: &str = "ggml_backend_dev_init";
        // C does not look whether those that work as one could be started.
        for &member in meta::members(device) {
            drop(Self::init(member, None)?);
        }
        let mark = log::mark();
        let params = params.map_or(ptr::null(), CStr::as_ptr);
        let raw = guard::call(CALL, || {
            // SAFETY: the device lives for ever, `params` during the call; the result is ours.
            unsafe { sys::ggml_backend_dev_init(device.as_ptr(), params) }
        })?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::Null { call: CALL, log: log::since(mark) })?;
        Ok(Self { raw, leaked: false })
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ggml_backend {
        self.raw.as_ptr()
    }

    /// Makes the drop do nothing.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
    }

    pub(super) fn is_leaked(&self) -> bool {
        self.leaked
    }

    pub(super) fn name(&self) -> String {
        // SAFETY: live by the type's invariant; the text is copied at once.
        let text = unsafe { sys::ggml_backend_name(self.as_ptr()) };
        // SAFETY: a C string or NULL, see above.
        unsafe { ffi::string(text) }
    }

    pub(super) fn synchronize(&mut self) -> Result<()> {
        guard::call("ggml_backend_synchronize", || {
            // SAFETY: live by the type's invariant, and `&mut` keeps other threads out.
            unsafe { sys::ggml_backend_synchronize(self.as_ptr()) }
        })
    }

    /// [`RawBackend::synchronize`] that never panics, and also where guarded calls fail otherwise.
    pub(super) fn settle(&mut self) -> Result<()> {
        guard::settle("ggml_backend_synchronize", || {
            // SAFETY: as in `synchronize`.
            unsafe { sys::ggml_backend_synchronize(self.as_ptr()) }
        })
    }

    /// Makes a CPU backend ask `callback` whether to stop.
    pub(super) fn set_abort(
        &mut self,
        cpu: Registry,
        callback: sys::ggml_abort_callback,
        user: *mut c_void,
    ) -> Result<()> {
        let set = cpu.function(named!(c"ggml_backend_set_abort_callback" as ggml_backend_set_abort_callback_t))?;
        guard::call("ggml_backend_set_abort_callback", || {
            // SAFETY: the backend is a live CPU backend; it keeps `user`, which its owner drops after it or replaces here.
            unsafe { set(self.as_ptr(), callback, user) }
        })
    }

    /// Makes a CPU backend leave out what is there for speed only, or not.
    pub(super) fn set_use_ref(&mut self, cpu: Registry, on: bool) -> Result<()> {
        let set = cpu.function(named!(c"ggml_backend_cpu_set_use_ref" as ggml_backend_cpu_set_use_ref(_, _)))?;
        guard::call("ggml_backend_cpu_set_use_ref", || {
            // SAFETY: the backend is a live CPU backend, of which C sets a field.
            unsafe { set(self.as_ptr(), on) }
        })
    }

    /// Lets the threads of `pool`, which the backend uses, sleep until the next computation. That is what ggml does with a
    /// pool that is replaced; one that a computation finds asleep is woken.
    pub(super) fn pause_pool(&mut self, cpu: Registry, pool: &RawPool) -> Result<()> {
        self.set_pool(cpu, ptr::null_mut())?;
        self.set_pool(cpu, pool.raw.as_ptr())
    }

    /// `pool` must be NULL, or live as long as the backend has it.
    fn set_pool(&mut self, cpu: Registry, pool: *mut sys::ggml_threadpool) -> Result<()> {
        let set = cpu.function(named!(c"ggml_backend_cpu_set_threadpool" as ggml_backend_cpu_set_threadpool(_, _)))?;
        guard::call("ggml_backend_cpu_set_threadpool", || {
            // SAFETY: backend and pool are live; the owner of both drops the backend first. A former pool is still alive
            // and idle, and is only paused by this.
            unsafe { set(self.as_ptr(), pool) }
        })
    }

    /// Makes a CPU backend compute on `n` threads of `pool`, which has as many.
    pub(super) fn use_pool(&mut self, cpu: Registry, pool: &RawPool, n: usize) -> Result<()> {
        self.set_pool(cpu, pool.raw.as_ptr())?;
        // The pool has `n` threads, so none beyond its end is used (H26).
        self.set_n_threads(cpu, n)
    }

    /// Tells a CPU or BLAS backend, of this registry, how many threads to use. A CPU's pool must have as many.
    pub(super) fn set_n_threads(&mut self, registry: Registry, n: usize) -> Result<()> {
        // SAFETY: live by the type's invariant, and of that registry, as the caller says.
        unsafe { set_n_threads(registry, self.as_ptr(), n) }
    }

    /// Tells those backends of a meta backend that are CPUs, by their devices, how many threads to start for each graph.
    pub(super) fn set_member_threads(&mut self, members: &[Device], n: usize) -> Result<()> {
        for (i, device) in members.iter().enumerate().filter(|(_, d)| d.device_type() == DeviceType::Cpu) {
            let Some(registry) = device.registry() else { continue };
            let member = guard::call("ggml_backend_meta_simple_backend", || {
                // SAFETY: a live meta backend of these members, so it has an `i`th; the result lives as long as it.
                unsafe { ggml_backend_meta_simple_backend(self.as_ptr(), i) }
            })?;
            // SAFETY: live, see above, and of that registry, as its device is.
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
        // SAFETY: the backend is live and of that registry, which C asserts; C sets a field.
        unsafe { set_threads(backend, n) }
    })
}

impl Drop for RawBackend {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        guard::free("ggml_backend_free", || {
            // SAFETY: live and ours by the type's invariant, and used by nothing after this.
            unsafe { sys::ggml_backend_free(self.as_ptr()) }
        });
    }
}

/// A live thread pool that nothing else frees.
pub(super) struct RawPool {
    raw: NonNull<sys::ggml_threadpool>,
    cpu: Registry,
}

// SAFETY: a pool belongs to no thread; its owner is used by one at a time.
unsafe impl Send for RawPool {}

impl RawPool {
    /// Starts the threads.
    pub(super) fn start(cpu: Registry, threads: &Threads) -> Result<Self> {
        const CALL: &str = "ggml_threadpool_new";
        let new = cpu.function(named!(c"ggml_threadpool_new" as ggml_threadpool_new(_)))?;
        let mut params = threads.raw()?;
        let mark = log::mark();
        let raw = guard::call(CALL, || {
            // SAFETY: `params` has a valid number of threads (Threads::raw); C copies what it needs of it.
            unsafe { new(&raw mut params) }
        })?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::Null { call: CALL, log: log::since(mark) })?;
        Ok(Self { raw, cpu })
    }
}

impl Drop for RawPool {
    fn drop(&mut self) {
        // Without the function the threads stay: safe, and it was there when the pool was made.
        let Ok(free) = self.cpu.function(named!(c"ggml_threadpool_free" as ggml_threadpool_free(_))) else { return };
        let raw = self.raw.as_ptr();
        guard::free("ggml_threadpool_free", || {
            // SAFETY: live and ours by the type's invariant; the backend that used it is gone or has another one.
            unsafe { free(raw) }
        });
    }
}

/// A live event that nothing else frees.
pub(super) struct RawEvent(pub(super) NonNull<sys::ggml_backend_event>);

// SAFETY: an event belongs to no thread (docs/safety.md, "Threads").
unsafe impl Send for RawEvent {}
// SAFETY: only its `Event`, which is not `Sync`, uses it; a backend that holds it for its queue merely drops it.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    pub(super) fn as_ptr(&self) -> *mut sys::ggml_backend_event {
        self.0.as_ptr()
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        guard::free("ggml_backend_event_free", || {
            // SAFETY: live and ours; no backend's queue refers to it any more, or that backend would hold it.
            unsafe { sys::ggml_backend_event_free(self.as_ptr()) }
        });
    }
}
