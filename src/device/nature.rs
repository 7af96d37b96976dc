//! What runs on a device, and where: what this crate has to know of a few backends beside what they say of themselves.

use super::{Device, DeviceType, meta};
use crate::error::Result;
use crate::header::TensorPtr;

impl Device {
    /// Fails when the device, or one that it is made of, is on an RPC server that was lost.
    #[cfg_attr(
        not(feature = "rpc"),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "only RPC loses devices")
    )]
    pub(crate) fn check_alive(self) -> Result<()> {
        #[cfg(feature = "rpc")]
        super::lost::check(self.as_ptr())?;
        #[cfg(feature = "rpc")]
        meta::members(self).iter().try_for_each(|d| d.check_alive())?;
        Ok(())
    }

    /// Whether what runs on the device are, or may be, ggml's CPU kernels, whose own claims of what they support are
    /// too wide: the CPU, and RPC servers, which may serve one.
    pub(crate) fn runs_cpu_kernels(self) -> bool {
        self.device_type() == DeviceType::Cpu
            || self.is_remote()
            || meta::members(self).iter().any(|d| d.runs_cpu_kernels())
    }

    /// Whether the device is ggml's BLAS backend in this process.
    pub(crate) fn is_blas(self) -> bool {
        self.device_type() == DeviceType::Accelerator && self.registry().is_some_and(|r| r.name() == "BLAS")
    }

    /// Whether what runs on the device is, or may be, ggml's BLAS backend, which claims too much as well.
    pub(crate) fn runs_blas(self) -> bool {
        self.is_blas() || self.is_remote()
    }

    /// Whether what runs on the device can call closures of this process: only its own CPU can. RPC would send their
    /// addresses.
    pub(crate) fn runs_closures(self) -> bool {
        self.device_type() == DeviceType::Cpu && !self.is_remote()
    }

    /// Whether the device is told the true shape of `t`: RPC cuts dimensions and strides to 32 bits.
    pub(crate) fn fits_wire(self, t: TensorPtr) -> bool {
        let ne = t.ne().iter().all(|&n| u32::try_from(n).is_ok());
        let nb = t.nb().iter().all(|&n| u32::try_from(n).is_ok());
        (ne && nb) || !self.is_remote()
    }

    /// Whether the device, or one that it is made of, is reached over RPC.
    pub(crate) fn is_remote(self) -> bool {
        self.registry().is_some_and(|r| r.name().starts_with("RPC"))
            || meta::members(self).iter().any(|d| d.is_remote())
    }
}
