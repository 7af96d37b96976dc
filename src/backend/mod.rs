//! Backends: streams of work on a device.

mod abort;
mod cpu;
mod event;
#[cfg(all(feature = "metal", not(feature = "dynamic-backends")))]
mod metal;
pub(crate) mod numa;
mod raw;
mod threads;

use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use crate::device::{Device, DeviceType, meta};
use crate::error::{Error, Result};
use crate::log;
use abort::Abort;
use raw::{RawBackend, RawEvent, RawPool};

pub(crate) use abort::check_status;
pub use event::Event;
pub use numa::{Numa, is_numa, numa_init};
pub use threads::{Priority, Threads};

/// A stream of work on a device (`ggml_backend_t`).
///
/// A CPU backend owns its threads: they wait for work between computations rather than being started for each.
///
/// # Why `&mut`?
///
/// ggml's backends keep working memory and queues without locks: one thread at a time may use one.
#[doc(alias = "ggml_backend_t")]
#[doc(alias = "ggml_backend_free")]
pub struct Backend {
    // Field order is drop order: the backend goes before the pool whose threads it uses, and what it may call or wait for.
    raw: RawBackend,
    pool: Option<RawPool>,
    abort: Option<Abort>,
    /// Events that queued work refers to.
    events: Vec<Arc<RawEvent>>,
    device: Device,
    threads: usize,
    id: Id,
    /// For a meta device, the plan whose graphs it computed last.
    serves: Option<u64>,
}

/// Tells backends apart, even one from another that got its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(u64);

impl Id {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Device {
    /// A stream of work on the device (`ggml_backend_dev_init`).
    ///
    /// # Errors
    ///
    /// [`Error::Null`] where the device can't be started; [`Error::Ggml`] or [`Error::Exception`] where it fails.
    #[doc(alias = "ggml_backend_dev_init")]
    #[doc(alias = "ggml_backend_rpc_init")]
    pub fn init(self) -> Result<Backend> {
        Backend::new(self, None)
    }

    /// [`Device::init`] with parameters in the words of the device's backend.
    ///
    /// # Errors
    ///
    /// As [`Device::init`]; [`Error::Param`] where `params` holds a NUL.
    pub fn init_with(self, params: &str) -> Result<Backend> {
        let c = CString::new(params).map_err(|_| Error::Param {
            op: "Device::init_with",
            name: "params",
            value: params.escape_default().to_string().into(),
            expected: "it must not hold a NUL".into(),
        })?;
        Backend::new(self, Some(&c))
    }
}

impl Backend {
    /// The most threads a CPU backend can have (`GGML_MAX_N_THREADS`).
    pub const MAX_THREADS: usize = sys::GGML_MAX_N_THREADS as usize;

    /// A backend on the first GPU, else on the first integrated GPU, else on the CPU (`ggml_backend_init_best`).
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`] and [`Device::init`].
    #[doc(alias = "ggml_backend_init_best")]
    pub fn best() -> Result<Self> {
        Device::best()?.init()
    }

    /// A backend on the CPU with as many threads as it can run at once.
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`] and [`Device::init`].
    #[doc(alias = "ggml_backend_cpu_init")]
    pub fn cpu() -> Result<Self> {
        Device::cpu()?.init()
    }

    /// A backend on the device with this name (`ggml_backend_init_by_name`), such as `BLAS` or `Vulkan0`.
    ///
    /// # Errors
    ///
    /// As [`Device::by_name`] and [`Device::init`].
    #[doc(alias = "ggml_backend_init_by_name")]
    #[doc(alias = "ggml_backend_blas_init")]
    #[doc(alias = "ggml_backend_cuda_init")]
    #[doc(alias = "ggml_backend_metal_init")]
    #[doc(alias = "ggml_backend_vk_init")]
    pub fn by_name(name: &str) -> Result<Self> {
        Device::by_name(name)?.init()
    }

    /// A backend on the first device of a kind (`ggml_backend_init_by_type`).
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`] and [`Device::init`].
    #[doc(alias = "ggml_backend_init_by_type")]
    pub fn by_type(kind: DeviceType) -> Result<Self> {
        Device::by_type(kind)?.init()
    }

    /// A backend from a text: the name of a device, or the name and parameters of its backend's own, with a colon
    /// between them, such as `CUDA0`.
    ///
    /// # Errors
    ///
    /// As [`Device::by_name`] and [`Device::init_with`].
    pub fn from_spec(spec: &str) -> Result<Self> {
        // Names may hold a colon themselves (an RPC server's address): the longest name that fits wins.
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
                "several devices that work as one have no parameters in common",
            )?;
        }
        let raw = RawBackend::init(device, params)?;
        device.check_alive()?;
        let mut this =
            Self { raw, pool: None, abort: None, events: Vec::new(), device, threads: 1, id: Id::next(), serves: None };
        if device.device_type() == DeviceType::Cpu || device.is_blas() || has_cpus(device) {
            let n = std::thread::available_parallelism().map_or(1, usize::from);
            this.set_threads(n.min(Self::MAX_THREADS))?;
        }
        Ok(this)
    }

    /// Makes a backend of a meta device ready for graphs of this plan. Between graphs with other numbers of operations or of
    /// sums, C forgets to make its lists longer, or keeps some of lists that it freed: it gets a new object for each plan.
    pub(crate) fn serve(&mut self, plan: u64) -> Result<()> {
        if meta::is_meta(self.device) && self.serves != Some(plan) {
            self.check()?;
            if self.serves.is_some() {
                self.raw = RawBackend::init(self.device, None)?;
                self.id = Id::next();
                self.raw.set_member_threads(meta::members(self.device), self.threads)?;
            }
            self.serves = Some(plan);
        }
        Ok(())
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// The device that the backend works on (`ggml_backend_get_device`).
    #[doc(alias = "ggml_backend_get_device")]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The backend's name, which is that of its device (`ggml_backend_name`).
    #[doc(alias = "ggml_backend_name")]
    pub fn name(&self) -> String {
        self.raw.name()
    }

    /// The threads that a CPU or BLAS backend computes with; 1 for other devices (`ggml_threadpool_get_n_threads`).
    #[doc(alias = "ggml_threadpool_get_n_threads")]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Gives a CPU backend threads of its own: a number, the calling one counted, or more about them in [`Threads`]
    /// (`ggml_backend_cpu_set_n_threads`, `ggml_threadpool_new`).
    ///
    /// To a BLAS backend it tells their number (`ggml_backend_blas_set_n_threads`); the threads are those of the BLAS
    /// library, which it keeps for the whole process: the backend that computed last has set their number. So too for the
    /// CPUs among the devices of a [`MetaDevice`](crate::meta::MetaDevice), which start their threads for each graph.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] where the number does not lie in 1 to [`Backend::MAX_THREADS`], more than a number is said of a BLAS
    /// backend's, or the device is neither; [`Error::Null`] where threads can't be started.
    #[doc(alias = "ggml_backend_cpu_set_n_threads")]
    #[doc(alias = "ggml_backend_cpu_set_threadpool")]
    #[doc(alias = "ggml_backend_blas_set_n_threads")]
    #[doc(alias = "ggml_threadpool_new")]
    #[doc(alias = "ggml_threadpool_free")]
    #[doc(alias = "ggml_threadpool_params_init")]
    pub fn set_threads(&mut self, threads: impl Into<Threads>) -> Result<()> {
        let threads = threads.into();
        let refuse = |expected: &'static str| {
            Err(Error::Param {
                op: "Backend::set_threads",
                name: "threads",
                value: format!("{threads:?}").into(),
                expected: expected.into(),
            })
        };
        if has_cpus(self.device) {
            if threads != Threads::new(threads.count) {
                return refuse("of the threads of devices that work as one there is only a number");
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
            return refuse("only a CPU or BLAS backend has threads");
        };
        self.check()?;
        if blas {
            if threads != Threads::new(threads.count) {
                return refuse("of a BLAS backend's threads there is only a number");
            }
            threads.check_count()?;
            self.raw.set_n_threads(registry, threads.count)?;
        } else {
            let pool = RawPool::start(registry, &threads)?;
            self.raw.use_pool(registry, &pool, threads.count)?;
            // The old pool's threads are idle, and the backend no longer knows them.
            self.pool = Some(pool);
        }
        self.threads = threads.count;
        Ok(())
    }

    /// Waits until all work given to the backend is done (`ggml_backend_synchronize`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] where the device fails.
    #[doc(alias = "ggml_backend_synchronize")]
    pub fn synchronize(&mut self) -> Result<()> {
        self.check()?;
        self.raw.synchronize()?;
        self.device.check_alive()?;
        self.events.clear();
        Ok(())
    }

    /// Waits until nothing is under way any more, though the device may be lost. Never panics. After an error nobody knows.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.raw.settle().inspect_err(|_| self.poison())
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_backend {
        self.raw.as_ptr()
    }

    /// After a failure inside the C object neither using nor freeing it is safe: it is leaked, with its threads.
    ///
    /// What it gave to a Vulkan device is waited for, since memory that it uses may be freed next.
    ///
    /// That of BLAS is freed, as its threads may still be converting an operand, whose memory may be freed next: its
    /// destructor waits for them. Another one takes its place, as that of one which is never used.
    pub(crate) fn poison(&mut self) {
        if self.device.is_blas()
            && !self.raw.is_leaked()
            && let Ok(other) = RawBackend::init(self.device, None)
        {
            drop(std::mem::replace(&mut self.raw, other));
        }
        if self.device.is_vulkan()
            && !self.raw.is_leaked()
            && let Err(error) = event::drain(self.device)
        {
            log::say(::log::Level::Error, format!("{} may still be at work: {error}", self.device));
        }
        self.raw.leak();
        #[expect(clippy::mem_forget, reason = "the interrupted backend still refers to its threads")]
        std::mem::forget((self.pool.take(), self.abort.take(), std::mem::take(&mut self.events)));
    }

    /// Fails after [`Backend::poison`], and when the device was lost.
    pub(crate) fn check(&self) -> Result<()> {
        if self.raw.is_leaked() {
            return Err(Error::Poisoned { object: "backend" });
        }
        self.device.check_alive()
    }
}

/// Whether it is a meta device with CPUs among its devices.
fn has_cpus(device: Device) -> bool {
    meta::members(device).iter().any(|d| d.device_type() == DeviceType::Cpu)
}

impl Drop for Backend {
    fn drop(&mut self) {
        // Events must not go while queued work refers to them. Where that fails, so will the next thing.
        if !self.events.is_empty() && self.synchronize().is_err() {
            self.poison();
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("device", &self.device).field("threads", &self.threads).finish_non_exhaustive()
    }
}
