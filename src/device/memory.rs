//! Buffer types: where tensors can be placed.

use std::ptr::NonNull;

use ggml_sys as sys;

use super::{Device, meta};
use crate::callback;
use crate::debug::debug;
use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::{ffi, guard};

/// Memory of a device in which tensors can be placed (`ggml_backend_buffer_type_t`).
///
/// A handle to an object that is never freed; copying it is free.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::BufferType;
/// let memory: BufferType = Device::cpu()?.buffer_type();
/// assert_eq!((memory.name(), memory.is_host()), ("CPU".to_string(), true));
/// assert!(memory.alignment()?.is_power_of_two());
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_buffer_type_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferType(NonNull<sys::ggml_backend_buffer_type>);

// SAFETY: buffer types are immutable objects that ggml never frees (docs/safety.md, "Threads").
unsafe impl Send for BufferType {}
// SAFETY: buffer types are immutable, so threads can share them (docs/safety.md, "Threads").
unsafe impl Sync for BufferType {}

impl BufferType {
    /// # Safety
    ///
    /// `raw` must be a buffer type that is never freed.
    pub(crate) unsafe fn from_raw(raw: *mut sys::ggml_backend_buffer_type) -> Self {
        // SAFETY: `raw` is not NULL, by this function's `# Safety`.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    pub(crate) fn as_ptr(self) -> *mut sys::ggml_backend_buffer_type {
        self.0.as_ptr()
    }

    /// The name, such as `CPU` or `CUDA_Host` (`ggml_backend_buft_name`).
    #[doc(alias = "ggml_backend_buft_name")]
    pub fn name(self) -> String {
        // ggml's name for a meta device's buffer type lacks the members.
        if let Some(name) = self.device().and_then(meta::name) {
            return name;
        }
        // SAFETY: buffer types and their names are never freed.
        unsafe { ffi::text_of(sys::ggml_backend_buft_name, self.as_ptr()) }
    }

    /// The alignment of tensors in bytes, a power of two (`ggml_backend_buft_get_alignment`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] if the device doesn't answer.
    #[doc(alias = "ggml_backend_buft_get_alignment")]
    #[doc(alias = "ggml_backend_buffer_get_alignment")]
    #[doc(alias = "ggml_backend_get_alignment")]
    pub fn alignment(self) -> Result<usize> {
        callback::check_reentry("BufferType::alignment")?;
        let n = self.size("ggml_backend_buft_get_alignment", || {
            // SAFETY: buffer types are never freed; the call only reads it.
            unsafe { sys::ggml_backend_buft_get_alignment(self.as_ptr()) }
        })?;
        Ok(n.max(1))
    }

    /// The maximum size of a buffer in bytes (`ggml_backend_buft_get_max_size`). If a single tensor is larger, ggml
    /// requests a larger buffer anyway.
    ///
    /// # Errors
    ///
    /// As [`BufferType::alignment`].
    #[doc(alias = "ggml_backend_buft_get_max_size")]
    #[doc(alias = "ggml_backend_buffer_get_max_size")]
    #[doc(alias = "ggml_backend_get_max_size")]
    pub fn max_size(self) -> Result<usize> {
        callback::check_reentry("BufferType::max_size")?;
        self.size("ggml_backend_buft_get_max_size", || {
            // SAFETY: buffer types are never freed; the call only reads it.
            unsafe { sys::ggml_backend_buft_get_max_size(self.as_ptr()) }
        })
    }

    /// Whether the CPU can address the memory directly (`ggml_backend_buft_is_host`).
    #[doc(alias = "ggml_backend_buft_is_host")]
    pub fn is_host(self) -> bool {
        // C also calls the memory of a meta device of CPUs host memory, but buffers of that device have no addresses.
        if self.device().is_some_and(meta::is_meta) {
            return false;
        }
        // SAFETY: buffer types are never freed; the call only reads it.
        unsafe { sys::ggml_backend_buft_is_host(self.as_ptr()) }
    }

    /// The device that the memory belongs to (`ggml_backend_buft_get_device`).
    #[doc(alias = "ggml_backend_buft_get_device")]
    pub fn device(self) -> Option<Device> {
        // SAFETY: buffer types are never freed; the call only reads it.
        let raw = unsafe { sys::ggml_backend_buft_get_device(self.as_ptr()) };
        // SAFETY: `raw` is NULL, or the device of a buffer type, which is never freed.
        unsafe { Device::from_raw(raw) }
    }

    /// The bytes that a tensor takes in this buffer type, including padding.
    pub(crate) fn alloc_size_of(self, t: TensorPtr) -> Result<usize> {
        self.size("ggml_backend_buft_get_alloc_size", || {
            // SAFETY: buffer types are never freed, the tensor lives by TensorPtr's invariants. C only reads them.
            unsafe { sys::ggml_backend_buft_get_alloc_size(self.as_ptr(), t.as_ptr()) }
        })
    }

    /// Asks the device for a size. The answer counts only if the device is not lost afterwards.
    fn size(self, call: &'static str, ask: impl FnOnce() -> usize) -> Result<usize> {
        let n = guard::call(call, ask)?;
        self.check_alive()?;
        Ok(n)
    }

    pub(crate) fn check_alive(self) -> Result<()> {
        self.device().map_or(Ok(()), Device::check_alive)
    }
}

debug!(BufferType(name));

/// The buffer type of a tensor's memory, if it has any. The tensor's buffer must be alive.
pub(crate) fn type_of(t: TensorPtr) -> Option<BufferType> {
    let buffer = t.root().buffer();
    if buffer.is_null() {
        return None;
    }
    // SAFETY: the buffer is alive (the caller's check); the call only reads it.
    let raw = unsafe { sys::ggml_backend_buffer_get_type(buffer) };
    // SAFETY: every buffer has a type, and types are never freed.
    Some(unsafe { BufferType::from_raw(raw) })
}

/// Fails if the tensor's memory is on an RPC server that was lost. The tensor's buffer must be alive.
pub(crate) fn check_alive(t: TensorPtr) -> Result<()> {
    type_of(t).map_or(Ok(()), BufferType::check_alive)
}

/// Whether the tensor's memory is Vulkan's, which fills words of four bytes only. The tensor's buffer must be alive.
pub(crate) fn fills_words(t: TensorPtr) -> bool {
    type_of(t).and_then(BufferType::device).is_some_and(Device::is_vulkan)
}

/// The error for a failed allocation on a device, with ggml's log.
pub(crate) fn out_of_memory(buft: BufferType, bytes: Option<usize>, log: Box<str>) -> Error {
    Error::OutOfMemory { what: format!("a buffer of type {}", buft.name()).into(), bytes, log }
}
