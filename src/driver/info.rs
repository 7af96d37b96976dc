//! What a device in Rust is called and can do. `register.rs` checks it, and `raw/device.rs` tells C.

use crate::device::DeviceType;
use crate::options::options;

options! {
    /// What a [`Driver`](super::Driver)'s device is called and can do.
    ///
    /// ```
    /// use ggml::{DeviceType, driver::DriverInfo};
    /// let info = DriverInfo::new("Abacus0".into(), DeviceType::Accelerator).with_description("Beads on rods");
    /// assert!(!info.is_async && !info.has_memory);
    /// ```
    #[doc(alias = "ggml_backend_dev_props")]
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DriverInfo {
        /// A device called `name`: an accelerator or a GPU. A driver can't be a CPU, because closures run on CPUs.
        new(name: String, kind: DeviceType);
        /// Sets the description.
        with_description(description: String = String::new(), into);
        /// Sets whether the device has memory of its own ([`Driver::allocate`](super::Driver::allocate)). Otherwise the
        /// device works in the memory of the CPU.
        with_memory(has_memory: bool = false);
        /// Sets the alignment of tensors in the device's buffers in bytes: a power of two up to 2¹⁶.
        with_alignment(alignment: usize = 64);
        /// Sets the largest size of a buffer in bytes. If a single tensor is larger, a larger buffer is requested
        /// anyway.
        with_max_size(max_size: usize = usize::MAX);
        /// Sets whether the device's streams return before the work is done.
        with_async(is_async: bool = false);
        /// Sets whether the device has events ([`Driver::event`](super::Driver::event)).
        with_events(has_events: bool = false);
        /// Sets whether the device's streams order the nodes of a split
        /// ([`DriverStream::optimize`](super::DriverStream::optimize)).
        with_optimize(optimizes: bool = false);
    }
}
