//! Starts Vulkan devices. ggml starts each on the first query of its memory, without a lock, and keeps a
//! half-initialised one after a failure.

use ggml_sys as sys;

use super::{Device, DeviceType};
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::lock::Lock;
use crate::log;

/// The Vulkan devices that were started, in ggml's order, each with whether it can be used.
static STARTED: Lock<Vec<(Device, bool)>> = Lock::new(Vec::new());

/// Starts a Vulkan device, once. Returns whether it started well; otherwise nothing may use it.
pub(super) fn starts(device: Device) -> Result<bool> {
    let mut started = STARTED.lock();
    if let Some((_, well)) = started.iter().find(|(other, _)| *other == device) {
        return Ok(*well);
    }
    // SAFETY: devices are never freed, and no other thread starts this one: we hold the lock.
    let result = unsafe { guarded!(call, sys::ggml_backend_dev_buffer_type(device.as_ptr())) };
    if let Err(error @ Error::Nested { .. }) = result {
        return Err(error);
    }
    if let Err(error) = &result {
        log::say(::log::Level::Error, format!("{} can't be used, as it failed to start: {error}", device.name()));
    }
    started.push((device, result.is_ok()));
    Ok(result.is_ok())
}

/// Whether Vulkan has host memory. It belongs to the first device, whichever device is asked for it.
pub(super) fn has_host_memory() -> bool {
    STARTED.lock().first().is_some_and(|&(_, well)| well)
}

impl Device {
    /// Whether the device is one of ggml's Vulkan backend in this process.
    pub(crate) fn is_vulkan(self) -> bool {
        self.is_gpu_of(&["Vulkan"])
    }

    /// Whether the device is one of ggml's CUDA backend in this process, or of its copies for other GPUs.
    pub(crate) fn is_cuda(self) -> bool {
        self.is_gpu_of(&["CUDA", "ROCm", "MUSA"])
    }

    fn is_gpu_of(self, registries: &[&str]) -> bool {
        matches!(self.device_type(), DeviceType::Gpu | DeviceType::IntegratedGpu)
            && self.registry().is_some_and(|r| registries.contains(&&*r.name()))
    }
}
