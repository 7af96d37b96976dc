//! What computes behind a device, and where: facts about some backends that ggml's API doesn't report.

use super::{Device, DeviceType, driven, meta};
use crate::error::Result;
use crate::header::TensorPtr;

impl Device {
    /// Fails if the device, or a member of a meta device, was lost, either with its RPC server or by its implementation
    /// in Rust.
    pub(crate) fn check_alive(self) -> Result<()> {
        #[cfg(feature = "rpc")]
        super::lost::check(self.as_ptr())?;
        driven::check(self)?;
        meta::members(self).iter().try_for_each(|d| d.check_alive())
    }

    /// Whether the device runs, or may run, ggml's CPU kernels, which claim to support too much: a CPU, and an RPC
    /// server, which may serve one.
    pub(crate) fn runs_cpu_kernels(self) -> bool {
        self.device_type() == DeviceType::Cpu
            || self.is_remote()
            || meta::members(self).iter().any(|d| d.runs_cpu_kernels())
    }

    /// Whether the device is ggml's BLAS backend in this process.
    pub(crate) fn is_blas(self) -> bool {
        self.device_type() == DeviceType::Accelerator && self.registry().is_some_and(|r| r.name() == "BLAS")
    }

    /// Whether the device is, or may be, ggml's BLAS backend, which also claims to support too much.
    pub(crate) fn runs_blas(self) -> bool {
        self.is_blas() || self.is_remote()
    }

    /// Whether the device can call closures of this process. Only a local CPU can; over RPC, ggml would send their
    /// addresses.
    pub(crate) fn runs_closures(self) -> bool {
        self.device_type() == DeviceType::Cpu && !self.is_remote()
    }

    /// Whether the shape of `t` reaches the device unchanged: RPC truncates dimensions and strides to 32 bits.
    pub(crate) fn fits_wire(self, t: TensorPtr) -> bool {
        let ne = t.ne().iter().all(|&n| u32::try_from(n).is_ok());
        let nb = t.nb().iter().all(|&n| u32::try_from(n).is_ok());
        (ne && nb) || !self.is_remote()
    }

    /// Whether the device, or a member of a meta device, is reached over RPC.
    pub(crate) fn is_remote(self) -> bool {
        self.registry().is_some_and(|r| r.name().starts_with("RPC"))
            || meta::members(self).iter().any(|d| d.is_remote())
    }
}
