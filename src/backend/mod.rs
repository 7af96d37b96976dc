//! Backends: they run work on a device, in order.

mod abort;
mod contention;
mod cpu;
mod event;
mod init;
#[cfg(all(feature = "metal", not(feature = "dynamic-backends")))]
mod metal;
pub(crate) mod numa;
mod raw;
mod threads;

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use crate::callback;
use crate::debug::debug;
use crate::device::{Device, DeviceType, meta};
use crate::error::{Error, Result};
use crate::{guard, log};
use abort::Abort;
use contention::Contention;
use raw::{RawBackend, RawEvent, RawPool};

pub(crate) use abort::check_status;
pub use event::Event;
pub use numa::{Numa, is_numa, numa_init};
pub use threads::{Priority, Threads};

/// A queue of work on a device (`ggml_backend_t`).
///
/// A CPU backend owns its threads, which are not started for each computation but wait for work in between.
///
/// ```
/// # use ggml::prelude::*;
/// let mut backend = Backend::cpu()?;
/// backend.set_threads(2)?;
/// assert_eq!((backend.name(), backend.threads()), ("CPU".to_string(), 2));
/// let sched = Sched::builder().backend(backend).build()?; // it owns the backend
/// assert_eq!(sched.backends()[0].device(), Device::cpu()?);
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Why `&mut`?
///
/// ggml's backends have working memory and queues without locks, so one thread at a time may use one.
#[doc(alias = "ggml_backend_t")]
#[doc(alias = "ggml_backend_free")]
pub struct Backend {
    // Field order is drop order: the backend is dropped before the pools, the closure and the events that it uses.
    raw: RawBackend,
    pool: Option<RawPool>,
    /// The pool for graphs that the calling thread computes alone. With the other pool, idle threads would wake.
    alone: Option<RawPool>,
    abort: Option<Abort>,
    /// Events that submitted work refers to.
    events: Vec<Arc<RawEvent>>,
    device: Device,
    threads: usize,
    /// Whether C was told to use the pool of one thread.
    is_alone: bool,
    contention: Contention,
    id: BackendId,
    /// On a meta device, the id of the plan whose graphs the backend computed last.
    serves: Option<u64>,
}

/// A backend's unique id; addresses may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackendId(u64);

impl BackendId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Backend {
    /// The maximum number of threads of a CPU backend (`GGML_MAX_N_THREADS`).
    pub const MAX_THREADS: usize = sys::GGML_MAX_N_THREADS as usize;

    /// A backend on the first GPU, or else the first integrated GPU, or else the CPU (`ggml_backend_init_best`).
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`] and [`Device::init`].
    #[doc(alias = "ggml_backend_init_best")]
    pub fn best() -> Result<Self> {
        callback::check_reentry("Backend::best")?;
        Device::best()?.init()
    }

    /// A backend on the CPU, with as many threads as the CPU can run in parallel.
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`] and [`Device::init`].
    #[doc(alias = "ggml_backend_cpu_init")]
    pub fn cpu() -> Result<Self> {
        callback::check_reentry("Backend::cpu")?;
        Device::cpu()?.init()
    }

    /// A backend from a string: a device name, optionally followed by a colon and parameters for its backend, such as
    /// `CUDA0`.
    ///
    /// # Errors
    ///
    /// As [`Device::by_name`] and [`Device::init_with`].
    pub fn from_spec(spec: &str) -> Result<Self> {
        callback::check_reentry("Backend::from_spec")?;
        // Names may contain a colon themselves (an RPC server's address), so the longest name that fits is used.
        let all = Device::all()?;
        let fits = |d: &&Device| {
            let rest = spec.get(d.name().len()..).filter(|_| spec.is_char_boundary(d.name().len()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
                && spec.get(..d.name().len()).is_some_and(|start| start.eq_ignore_ascii_case(&d.name()))
        };
        let Some(device) = all.iter().filter(fits).max_by_key(|d| d.name().len()) else {
            return Device::by_name(spec)?.init();
        };
        match spec.get(device.name().len() + 1..) {
            Some(params) => device.init_with(params),
            None => device.init(),
        }
    }

    pub(crate) fn new(device: Device, params: Option<&CStr>) -> Result<Self> {
        device.check_alive()?;
        if device.device_type() == DeviceType::Cpu {
            numa::used();
        }
        if params.is_some() {
            meta::before_use(
                "Device::init_with",
                device,
                "a meta device takes no parameters, as its members' backends differ; use `init`",
            )?;
        }
        let raw = RawBackend::init(device, params)?;
        let mut this = Self {
            raw,
            pool: None,
            alone: None,
            abort: None,
            events: Vec::new(),
            device,
            threads: 1,
            is_alone: false,
            contention: Contention::default(),
            id: BackendId::next(),
            serves: None,
        };
        if device.device_type() == DeviceType::Cpu || device.is_blas() || has_cpus(device) {
            let n = std::thread::available_parallelism().map_or(1, usize::from);
            this.set_threads(n.min(Self::MAX_THREADS))?;
        }
        log::note(::log::Level::Debug, || format!("opened {device}, threads: {}", this.threads));
        Ok(this)
    }

    /// Prepares a meta device's backend for graphs of the plan with this id. When the number of nodes or partial sums
    /// changes between graphs, C fails to grow its lists, or keeps pointers into freed ones. So each plan gets a new C
    /// backend.
    pub(crate) fn serve(&mut self, plan: u64) -> Result<()> {
        if meta::is_meta(self.device) && self.serves != Some(plan) {
            self.check()?;
            if self.serves.is_some() {
                self.raw = RawBackend::init(self.device, None)?;
                self.id = BackendId::next();
                self.raw.set_member_threads(meta::members(self.device), self.threads)?;
            }
            self.serves = Some(plan);
        }
        Ok(())
    }

    /// Makes room for the views of a graph, by [`RawBackend::renew_views`].
    pub(crate) fn renew_views(&mut self, states: &mut [*mut sys::ggml_tensor]) -> Result<()> {
        let status = self.raw.renew_views(states);
        if guard::interrupted(&status) {
            let _ended = self.poison();
        }
        check_status("ggml_backend_graph_compute_async", status?)
    }

    pub(crate) fn id(&self) -> BackendId {
        self.id
    }

    /// The backend's device (`ggml_backend_get_device`).
    #[doc(alias = "ggml_backend_get_device")]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The backend's name, which is its device's (`ggml_backend_name`).
    #[doc(alias = "ggml_backend_name")]
    pub fn name(&self) -> String {
        self.raw.name()
    }

    /// The number of threads of a CPU or BLAS backend; 1 on other devices (`ggml_threadpool_get_n_threads`).
    #[doc(alias = "ggml_threadpool_get_n_threads")]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Sets the threads of a CPU backend: a number that includes the calling thread, or details in [`Threads`]
    /// (`ggml_backend_cpu_set_n_threads`, `ggml_threadpool_new`).
    ///
    /// The calling thread computes graphs of short operations alone, and on a busy machine those of longer ones, unless
    /// [`Threads::with_all`] is set.
    ///
    /// A BLAS backend takes only a number (`ggml_backend_blas_set_n_threads`). The BLAS library has one pool for the
    /// whole process, so the backend that computed last determines its size. CPU members of a
    /// [`MetaDevice`](crate::meta::MetaDevice) take only a number, too, and start their threads for each graph.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::Threads;
    /// let mut backend = Backend::cpu()?;
    /// backend.set_threads(4)?;
    /// backend.set_threads(Threads::new(4).with_poll(100))?; // spin, for the least latency
    /// assert_eq!(backend.threads(), 4);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the number is not in 1 to [`Backend::MAX_THREADS`], if a BLAS backend or meta device gets
    /// more than a number, or if the device is none of these; [`Error::Null`] if threads can't be started.
    #[doc(alias = "ggml_backend_cpu_set_n_threads")]
    #[doc(alias = "ggml_backend_cpu_set_threadpool")]
    #[doc(alias = "ggml_backend_blas_set_n_threads")]
    #[doc(alias = "ggml_threadpool_new")]
    #[doc(alias = "ggml_threadpool_free")]
    #[doc(alias = "ggml_threadpool_params_init")]
    pub fn set_threads(&mut self, threads: impl Into<Threads>) -> Result<()> {
        callback::check_reentry("Backend::set_threads")?;
        let threads = threads.into();
        let refuse = |expected: &'static str| {
            Err(Error::param("Backend::set_threads", "threads", format!("{threads:?}"), expected))
        };
        if has_cpus(self.device) {
            if threads != Threads::new(threads.count) {
                return refuse("a meta device takes only a number of threads");
            }
            threads.check_count()?;
            self.check()?;
            self.raw.set_member_threads(meta::members(self.device), threads.count)?;
            self.threads = threads.count;
            return Ok(());
        }
        let blas = self.device.is_blas();
        let has_threads = blas || self.device.device_type() == DeviceType::Cpu;
        let Some(registry) = self.device.registry().filter(|_| has_threads) else {
            return refuse("only CPU and BLAS backends, and meta devices with CPUs, have threads");
        };
        self.check()?;
        if blas {
            if threads != Threads::new(threads.count) {
                return refuse("a BLAS backend takes only a number of threads");
            }
            threads.check_count()?;
            self.raw.set_n_threads(registry, threads.count)?;
        } else {
            let pool = RawPool::start(registry, &threads)?;
            let one = Threads { count: 1, ..threads.clone() };
            let alone = if threads.all || threads.count == 1 { None } else { Some(RawPool::start(registry, &one)?) };
            self.raw.set_pool(registry, pool.raw.as_ptr())?;
            // The old pools' threads are idle, and the backend no longer refers to them.
            (self.pool, self.alone, self.is_alone) = (Some(pool), alone, false);
            // The pool has as many threads as the backend is told here, so all thread indices are in bounds (H26).
            self.raw.set_n_threads(registry, threads.count)?;
        }
        self.threads = threads.count;
        Ok(())
    }

    /// Waits until all submitted work is done (`ggml_backend_synchronize`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] if the device fails.
    #[doc(alias = "ggml_backend_synchronize")]
    pub fn synchronize(&mut self) -> Result<()> {
        callback::check_reentry("Backend::synchronize")?;
        self.check()?;
        self.raw.synchronize()?;
        self.device.check_alive()?;
        self.events.clear();
        Ok(())
    }

    /// Drains the backend, even if its device is lost. Never panics. After `Err`, work may still run.
    pub(crate) fn wait_idle(&mut self) -> Result<()> {
        self.raw.wait_idle().inspect_err(|_| _ = self.poison())
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_backend {
        self.raw.as_ptr()
    }

    /// Leaks the C object with its threads: after a failure inside it, freeing it is not safe.
    ///
    /// Waits for submitted work first, because memory that it uses may be freed next. On Vulkan this waits for the
    /// device, because the C object can't wait.
    ///
    /// A BLAS backend is freed, and an unused one is leaked in its place: the destructor waits for the backend's
    /// threads, which may still convert an operand whose memory may be freed next. A meta device of devices in Rust is
    /// freed in the same way, so that it gives back the memory that it has taken of them for sums. Devices in Rust
    /// leave nothing half done.
    ///
    /// Returns whether all work has ended.
    pub(crate) fn poison(&mut self) -> bool {
        let mut ended = !self.raw.leaked;
        if self.device.is_blas()
            && !self.raw.leaked
            && let Ok(other) = RawBackend::init(self.device, None)
        {
            drop(std::mem::replace(&mut self.raw, other));
        }
        if !self.raw.leaked {
            let drained = if self.device.is_vulkan() { event::drain(self.device) } else { self.raw.wait_idle() };
            if let Err(error) = drained {
                ended = false;
                log::say(::log::Level::Error, format!("work on {} may still run: {error}", self.device));
            } else if self.device.is_of_drivers()
                && let Ok(other) = RawBackend::init(self.device, None)
            {
                drop(std::mem::replace(&mut self.raw, other));
            }
        }
        self.raw.leaked = true;
        callback::forget((self.pool.take(), self.alone.take(), self.abort.take(), std::mem::take(&mut self.events)));
        ended
    }

    /// Fails after [`Backend::poison`], and if the device was lost.
    pub(crate) fn check(&self) -> Result<()> {
        if self.raw.leaked {
            return Err(Error::Poisoned { object: "backend" });
        }
        self.device.check_alive()
    }
}

/// Whether the device is a meta device with a CPU as a member.
fn has_cpus(device: Device) -> bool {
    meta::members(device).iter().any(|d| d.device_type() == DeviceType::Cpu)
}

impl Drop for Backend {
    fn drop(&mut self) {
        // Submitted work must not refer to freed events. If waiting for the work fails, the backend and its events are
        // leaked.
        if !self.events.is_empty() && self.synchronize().is_err() {
            let _ended = self.poison();
        }
    }
}

/// The names of backends, for messages.
pub(crate) fn names(backends: &[Backend]) -> String {
    backends.iter().map(Backend::name).collect::<Vec<_>>().join(", ")
}

debug!(Backend, |this| device = &this.device, threads = &this.threads);
