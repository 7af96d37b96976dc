//! Backends: streams of work on a device.

mod raw;

use std::ffi::CStr;
use std::fmt;

use ggml_sys as sys;

use crate::device::{Device, DeviceType};
use crate::error::{Error, Result};
use raw::{RawBackend, RawPool};

/// A stream of work on a device (`ggml_backend_t`).
///
/// A CPU backend owns its threads: they wait for work between computations rather than being started for each.
///
/// # Why `&mut`?
///
/// ggml's backends keep working memory and queues without locks: one thread at a time may use one.
#[doc(alias = "ggml_backend_t")]
pub struct Backend {
    // Field order is drop order: the backend goes before the pool whose threads it uses.
    raw: RawBackend,
    pool: Option<RawPool>,
    device: Device,
    threads: usize,
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

    /// A backend on the device with this name (`ggml_backend_init_by_name`).
    ///
    /// # Errors
    ///
    /// As [`Device::by_name`] and [`Device::init`].
    #[doc(alias = "ggml_backend_init_by_name")]
    pub fn by_name(name: &str) -> Result<Self> {
        Device::by_name(name)?.init()
    }

    pub(crate) fn new(device: Device, params: Option<&CStr>) -> Result<Self> {
        device.check_alive()?;
        let raw = RawBackend::init(device, params)?;
        device.check_alive()?;
        let mut this = Self { raw, pool: None, device, threads: 1 };
        if device.device_type() == DeviceType::Cpu {
            let n = std::thread::available_parallelism().map_or(1, usize::from);
            this.set_threads(n.min(Self::MAX_THREADS))?;
        }
        Ok(this)
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

    /// The threads that a CPU backend computes with; 1 for other devices.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Gives a CPU backend `n` threads of its own, the calling one counted (`ggml_backend_cpu_set_n_threads`,
    /// `ggml_threadpool_new`).
    ///
    /// # Errors
    ///
    /// [`Error::Param`] unless `n` lies in 1 to [`Backend::MAX_THREADS`] and the device is a CPU; [`Error::Null`] where
    /// threads can't be started.
    #[doc(alias = "ggml_backend_cpu_set_n_threads")]
    #[doc(alias = "ggml_backend_cpu_set_threadpool")]
    #[doc(alias = "ggml_threadpool_new")]
    #[doc(alias = "ggml_threadpool_free")]
    #[doc(alias = "ggml_threadpool_params_default")]
    #[doc(alias = "ggml_threadpool_params_init")]
    pub fn set_threads(&mut self, n: usize) -> Result<()> {
        let refuse = |expected| {
            Err(Error::Param { op: "Backend::set_threads", name: "n", value: n.to_string().into(), expected })
        };
        if !(1..=Self::MAX_THREADS).contains(&n) {
            return refuse(format!("it must lie in 1 to {}", Self::MAX_THREADS).into());
        }
        let Some(registry) = self.device.registry().filter(|_| self.device.device_type() == DeviceType::Cpu) else {
            return refuse("only a CPU backend has threads".into());
        };
        self.check()?;
        let pool = RawPool::start(registry, n)?;
        self.raw.use_pool(registry, &pool, n)?;
        // The old pool's threads are idle, and the backend no longer knows them.
        self.pool = Some(pool);
        self.threads = n;
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
        self.device.check_alive()
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_backend {
        self.raw.as_ptr()
    }

    /// After a failure inside the C object neither using nor freeing it is safe: it is leaked, with its threads.
    pub(crate) fn poison(&mut self) {
        self.raw.leak();
        #[expect(clippy::mem_forget, reason = "the interrupted backend still refers to its threads")]
        std::mem::forget(self.pool.take());
    }

    /// Fails after [`Backend::poison`], and when the device was lost.
    pub(crate) fn check(&self) -> Result<()> {
        if self.raw.is_leaked() {
            return Err(Error::Poisoned { object: "backend" });
        }
        self.device.check_alive()
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("device", &self.device).field("threads", &self.threads).finish_non_exhaustive()
    }
}
