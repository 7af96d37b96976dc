//! What only CPU backends can do, beside their threads and being stopped.

use super::Backend;
use crate::device::{DeviceType, Registry};
use crate::error::{Error, Result};

impl Backend {
    /// Whether a CPU backend leaves out what is there for speed only, where kernels have something plainer: products by
    /// other libraries' code, attention by tiles, norms together with the product that follows
    /// (`ggml_backend_cpu_set_use_ref`). For comparing with other devices
    /// ([`GraphMemory::compare`](crate::GraphMemory::compare)).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_backend_cpu_set_use_ref")]
    pub fn set_use_ref(&mut self, on: bool) -> Result<()> {
        let cpu = self.cpu_registry("Backend::set_use_ref")?;
        self.raw.set_use_ref(cpu, on)
    }

    /// Lets the threads of a CPU backend sleep until the next computation, rather than wait for it in a loop
    /// (`ggml_threadpool_pause`); that wakes them (`ggml_threadpool_resume`). Without effect where the threads are
    /// `OpenMP`'s.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_threadpool_pause")]
    #[doc(alias = "ggml_threadpool_resume")]
    pub fn pause_threads(&mut self) -> Result<()> {
        let cpu = self.cpu_registry("Backend::pause_threads")?;
        match &self.pool {
            Some(pool) => self.raw.pause_pool(cpu, pool),
            None => Ok(()),
        }
    }

    /// The registry of a CPU backend that can be used, or an error of `op`.
    pub(super) fn cpu_registry(&self, op: &'static str) -> Result<Registry> {
        self.check()?;
        let cpu = self.device.registry().filter(|_| self.device.device_type() == DeviceType::Cpu);
        cpu.ok_or_else(|| Error::unsupported(op, [], self.device.name(), "only a CPU backend can do that"))
    }
}
