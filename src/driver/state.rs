//! The state behind the C objects of a device.

use std::ffi::CString;
use std::sync::OnceLock;

use ggml_sys as sys;

use super::node::span;
use super::{Driver, DriverInfo, Failure};
use crate::callback;
use crate::device::driven::Driven;
use crate::device::{BufferType, Device};
use crate::error::Error;
use crate::guard;
use crate::header::TensorPtr;
use crate::log;

/// Where the addresses of buffers of devices begin: they are no addresses of the host. A multiple of every alignment.
pub(super) const BASE: usize = 1 << 16;

/// A device. Never freed, as the C device is not.
pub(super) struct DeviceState<D: Driver> {
    pub(super) driver: D,
    pub(super) info: DriverInfo,
    pub(super) name: CString,
    pub(super) description: CString,
    pub(super) driven: Driven,
    /// Its C object, and its own buffer type if it has one, or else the CPU's. Set when it is registered.
    pub(super) raw: OnceLock<(Device, BufferType)>,
    /// All devices of its registry.
    pub(super) siblings: OnceLock<Box<[&'static Self]>>,
}

/// A buffer of a device.
pub(super) struct BufferState<D: Driver> {
    pub(super) device: &'static DeviceState<D>,
    pub(super) buffer: D::Buffer,
    pub(super) size: usize,
}

/// Where a tensor lies.
pub(super) enum Memory<'a, B> {
    Host(*mut u8),
    Own(&'a B, usize),
}

/// What a failure of a function means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The call that ran it fails.
    Fail,
    /// The device is lost.
    Lose,
    /// C is told so by a result.
    Tell,
    /// The scheduler refuses the graph once C has planned it.
    Object,
}

impl<D: Driver> DeviceState<D> {
    /// Runs a function of the driver, closed, and handles its failure or its panic. Returns `None` after either, and if
    /// the device is lost.
    pub(super) fn run<R>(&self, call: &'static str, then: Then, f: impl FnOnce() -> Result<R, Failure>) -> Option<R> {
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
        if failure.lost || then == Then::Lose {
            self.driven.mark_lost(failure.reason);
        } else if matches!(then, Then::Fail | Then::Object) {
            let (device, reason) = (self.driven.name().into(), failure.reason);
            let report = if then == Then::Fail { callback::fail } else { callback::object };
            report(Error::DeviceFailed { call, device, reason });
        }
        None
    }

    /// Ends the server that this thread runs, if it does: a function failed in it.
    pub(super) fn end_server(&self) {
        guard::end_server(|| self.driven.check().err());
    }

    /// Its own buffer type, or else the CPU's.
    pub(super) fn buft(&self) -> *mut sys::ggml_backend_buffer_type {
        self.raw.get().map_or(std::ptr::null_mut(), |(_, buft)| buft.as_ptr())
    }

    /// Whether a buffer type is this device's or another one's of its registry.
    pub(super) fn owns(&self, buft: *mut sys::ggml_backend_buffer_type) -> bool {
        let of = |device: &Self| device.info.has_memory && device.buft() == buft;
        of(self) || self.siblings.get().is_some_and(|all| all.iter().any(|device| of(device)))
    }

    /// Whether the device can use a buffer type: its own, or host memory if it has none.
    pub(super) fn uses(&self, buft: *mut sys::ggml_backend_buffer_type) -> bool {
        if self.info.has_memory {
            return self.buft() == buft;
        }
        // SAFETY: a live buffer type, of C's or of a buffer; C reads it.
        let device = unsafe { sys::ggml_backend_buft_get_device(buft) };
        // SAFETY: NULL, or a device, which is never freed.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: as above.
        let host = unsafe { sys::ggml_backend_buft_is_host(buft) };
        // C says so of a meta device of CPUs too, whose buffers have no addresses.
        host && !device.is_some_and(crate::device::meta::is_meta)
    }

    /// The state of a buffer of this registry. Empty buffers, and those of buffers, have none.
    ///
    /// # Safety
    ///
    /// `buffer` must be live for `'a`.
    pub(super) unsafe fn buffer_of<'a>(&self, buffer: *mut sys::ggml_backend_buffer) -> Option<&'a BufferState<D>> {
        // SAFETY: live by contract; C reads a field.
        let buft = unsafe { sys::ggml_backend_buffer_get_type(buffer) };
        // SAFETY: live by contract; C compares a field.
        if !self.owns(buft) || unsafe { sys::ggml_backend_buffer_is_multi_buffer(buffer) } {
            return None;
        }
        // SAFETY: live by contract; this reads a field.
        let context = unsafe { (*buffer).context }.cast_const().cast::<BufferState<D>>();
        // SAFETY: NULL, or what `raw/buffer.rs` made for a buffer of this registry's types, all of which are of `D`. It
        // lives as long as the buffer, and is never borrowed mutably.
        unsafe { context.as_ref() }
    }

    /// Where a tensor lies, if it is all in one buffer that the device can use, or one of its registry.
    ///
    /// # Safety
    ///
    /// The tensor's buffer must live for `'a`.
    pub(super) unsafe fn memory_of<'a>(&self, t: TensorPtr) -> Option<Memory<'a, D::Buffer>> {
        let buffer = t.root().buffer();
        let size = span(t.layout())?;
        if buffer.is_null() || !t.has_data() {
            return None;
        }
        let address = t.data().addr();
        let inside = |start: usize, len: usize| {
            let offset = address.checked_sub(start)?;
            offset.checked_add(size).filter(|&end| end <= len).map(|_| offset)
        };
        // SAFETY: the tensor's buffer lives as long as its memory is used.
        if let Some(state) = unsafe { self.buffer_of(buffer) } {
            return Some(Memory::Own(&state.buffer, inside(BASE, state.size)?));
        }
        // SAFETY: as above; C reads a field.
        if self.info.has_memory || !self.uses(unsafe { sys::ggml_backend_buffer_get_type(buffer) }) {
            return None;
        }
        // SAFETY: as above; host memory has a base.
        let start = unsafe { sys::ggml_backend_buffer_get_base(buffer) }.addr();
        // SAFETY: as above.
        inside(start, unsafe { sys::ggml_backend_buffer_get_size(buffer) })?;
        Some(Memory::Host(t.data().cast()))
    }
}

/// A C string; it ends at a NUL.
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// The text of a panic.
fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("not with a text")
}
