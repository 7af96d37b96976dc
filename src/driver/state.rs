//! The state behind the C objects of a device.

use std::ffi::CString;
use std::sync::OnceLock;

use ggml_sys as sys;

use super::{Driver, DriverInfo, Failure};
use crate::callback;
use crate::device::driven::Driven;
use crate::device::{BufferType, Device};
use crate::error::Error;
use crate::log;

/// The first address of a device's buffer, a multiple of every alignment. Addresses in such buffers are offsets, not
/// addresses of the host.
pub(super) const BASE: usize = 1 << 16;

/// A device implemented in Rust. Never freed, as the C device is not.
pub(super) struct DeviceState<D: Driver> {
    pub(super) driver: D,
    pub(super) info: DriverInfo,
    pub(super) name: CString,
    pub(super) description: CString,
    pub(super) driven: Driven,
    /// The C object of the device, and its own buffer type, or else the CPU's. Both are set when the device is
    /// registered.
    pub(super) raw: OnceLock<(Device, BufferType)>,
    /// All devices of the device's registry.
    pub(super) siblings: OnceLock<Box<[&'static Self]>>,
}

/// A buffer of a device.
pub(super) struct BufferState<D: Driver> {
    pub(super) device: &'static DeviceState<D>,
    pub(super) buffer: D::Buffer,
    pub(super) size: usize,
}

/// What follows when a function of the driver fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// The call that ran the function fails.
    FailCall,
    /// The device is lost.
    LoseDevice,
    /// C learns of the failure from the function's result.
    ReturnNone,
    /// The scheduler refuses the graph once C has planned it.
    RejectGraph,
}

impl<D: Driver> DeviceState<D> {
    /// Runs a function of the driver, which can't re-enter ggml, and handles its failure or its panic. Returns `None`
    /// after either, and if the device is lost.
    pub(super) fn run<R>(
        &self,
        call: &'static str,
        then: OnFailure,
        f: impl FnOnce() -> Result<R, Failure>,
    ) -> Option<R> {
        if self.driven.check().is_err() {
            return None;
        }
        let failure = match callback::run(f) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(failure)) => failure,
            Err(panic) => {
                let failure = Failure::lost(format!("{call} panicked: {}", text(&*panic)));
                callback::forget(panic);
                failure
            }
        };
        log::inside(&format!("{}: {call}: {failure}", self.driven.name()));
        if failure.lost || then == OnFailure::LoseDevice {
            self.driven.mark_lost(failure.reason);
        } else if matches!(then, OnFailure::FailCall | OnFailure::RejectGraph) {
            let (device, reason) = (self.driven.name().into(), failure.reason);
            let report = if then == OnFailure::FailCall { callback::fail } else { callback::reject };
            report(Error::DeviceFailed { call, device, reason });
        }
        None
    }

    /// The device's own buffer type, or else the CPU's.
    pub(super) fn buft(&self) -> *mut sys::ggml_backend_buffer_type {
        self.raw.get().map_or(std::ptr::null_mut(), |(_, buft)| buft.as_ptr())
    }

    /// Whether a buffer type belongs to this device or to another one of its registry.
    pub(super) fn owns(&self, buft: *mut sys::ggml_backend_buffer_type) -> bool {
        let of = |device: &Self| device.info.has_memory && device.buft() == buft;
        of(self) || self.siblings.get().is_some_and(|all| all.iter().any(|device| of(device)))
    }
}

/// Makes a C string of the text up to its first NUL.
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// The text of a panic.
fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("not with a text")
}
