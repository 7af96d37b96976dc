//! Settings of CPU backends, except for threads and stopping.

use super::Backend;
use crate::callback;
use crate::device::{DeviceType, Registry};
use crate::error::{Error, Result};

impl Backend {
    /// Whether a CPU backend uses reference kernels only: no matrix multiplication by other libraries, no tiled
    /// attention, no norms fused with multiplication (`ggml_backend_cpu_set_use_ref`). Useful for comparing with other
    /// devices ([`Run::compare`](crate::Run::compare)).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_backend_cpu_set_use_ref")]
    pub fn set_use_ref(&mut self, on: bool) -> Result<()> {
        callback::check_reentry("Backend::set_use_ref")?;
        let cpu = self.cpu_registry("Backend::set_use_ref")?;
        self.raw.set_use_ref(cpu, on)
    }

    /// Suspends the threads of a CPU backend, which otherwise spin for a while, until the next computation
    /// (`ggml_threadpool_pause`, `ggml_threadpool_resume`). Has no effect on `OpenMP` threads.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_threadpool_pause")]
    #[doc(alias = "ggml_threadpool_resume")]
    pub fn pause_threads(&mut self) -> Result<()> {
        callback::check_reentry("Backend::pause_threads")?;
        let cpu = self.cpu_registry("Backend::pause_threads")?;
        self.compute_alone(false)?;
        match &self.pool {
            Some(pool) => self.raw.pause_pool(cpu, pool),
            None => Ok(()),
        }
    }

    /// The registry of this backend if it is a usable CPU backend; else an error, which names `call`.
    pub(super) fn cpu_registry(&self, call: &'static str) -> Result<Registry> {
        self.check()?;
        let cpu = self.device.registry().filter(|_| self.device.device_type() == DeviceType::Cpu);
        cpu.ok_or_else(|| Error::unsupported(call, [], self.device.name(), "only a CPU backend can do that"))
    }
}
