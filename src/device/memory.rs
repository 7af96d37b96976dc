//! Types of buffers: where on devices tensors can lie.

use std::fmt;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::{Device, meta};
use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::{ffi, guard};

/// A kind of memory that tensors can lie in (`ggml_backend_buffer_type_t`).
///
/// A handle to an object that lives as long as the process; copying it costs nothing.
#[doc(alias = "ggml_backend_buffer_type_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferType(NonNull<sys::ggml_backend_buffer_type>);

// SAFETY: buffer types are immutable objects that ggml never frees (docs/safety.md, "Threads").
unsafe impl Send for BufferType {}
// SAFETY: as above.
unsafe impl Sync for BufferType {}

impl BufferType {
    /// # Safety
    ///
    /// `raw` must be a buffer type that is never freed.
    pub(crate) unsafe fn from_raw(raw: *mut sys::ggml_backend_buffer_type) -> Self {
        // SAFETY: not NULL by contract.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    pub(crate) fn as_ptr(self) -> *mut sys::ggml_backend_buffer_type {
        self.0.as_ptr()
    }

    /// The name, such as `CPU` or `CUDA_Host` (`ggml_backend_buft_name`).
    #[doc(alias = "ggml_backend_buft_name")]
    pub fn name(self) -> String {
        // SAFETY: buffer types live for ever; the text is copied at once.
        let text = unsafe { sys::ggml_backend_buft_name(self.as_ptr()) };
        // SAFETY: a C string or NULL, see above.
        unsafe { ffi::string(text) }
    }

    /// The alignment of tensors in bytes, a power of two (`ggml_backend_buft_get_alignment`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] where the device does not answer.
    #[doc(alias = "ggml_backend_buft_get_alignment")]
    #[doc(alias = "ggml_backend_buffer_get_alignment")]
    #[doc(alias = "ggml_backend_get_alignment")]
    pub fn alignment(self) -> Result<usize> {
        let n = guard::call("ggml_backend_buft_get_alignment", || {
            // SAFETY: lives for ever; the call only reads it.
            unsafe { sys::ggml_backend_buft_get_alignment(self.as_ptr()) }
        })?;
        self.check_alive()?;
        Ok(n.max(1))
    }

    /// The most bytes that one buffer may have (`ggml_backend_buft_get_max_size`).
    ///
    /// # Errors
    ///
    /// As [`BufferType::alignment`].
    #[doc(alias = "ggml_backend_buft_get_max_size")]
    #[doc(alias = "ggml_backend_buffer_get_max_size")]
    #[doc(alias = "ggml_backend_get_max_size")]
    pub fn max_size(self) -> Result<usize> {
        let n = guard::call("ggml_backend_buft_get_max_size", || {
            // SAFETY: lives for ever; the call only reads it.
            unsafe { sys::ggml_backend_buft_get_max_size(self.as_ptr()) }
        })?;
        self.check_alive()?;
        Ok(n)
    }

    /// Whether the processor can address the memory directly (`ggml_backend_buft_is_host`).
    #[doc(alias = "ggml_backend_buft_is_host")]
    pub fn is_host(self) -> bool {
        // C says so of several CPUs that work as one, where addresses are none.
        if self.device().is_some_and(meta::is_meta) {
            return false;
        }
        // SAFETY: lives for ever; the call only reads it.
        unsafe { sys::ggml_backend_buft_is_host(self.as_ptr()) }
    }

    /// The device that the memory belongs to (`ggml_backend_buft_get_device`).
    #[doc(alias = "ggml_backend_buft_get_device")]
    pub fn device(self) -> Option<Device> {
        // SAFETY: lives for ever; the call only reads it.
        let raw = unsafe { sys::ggml_backend_buft_get_device(self.as_ptr()) };
        // SAFETY: devices of buffer types are never freed.
        unsafe { Device::from_raw(raw) }
    }

    /// The bytes that a tensor takes in such memory, its padding included.
    pub(crate) fn alloc_size_of(self, t: TensorPtr) -> Result<usize> {
        let n = guard::call("ggml_backend_buft_get_alloc_size", || {
            // SAFETY: the type lives for ever, the tensor by TensorPtr's invariants; the call only reads them.
            unsafe { sys::ggml_backend_buft_get_alloc_size(self.as_ptr(), t.as_ptr()) }
        })?;
        self.check_alive()?;
        Ok(n)
    }

    pub(crate) fn check_alive(self) -> Result<()> {
        self.device().map_or(Ok(()), Device::check_alive)
    }
}

impl fmt::Debug for BufferType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferType({})", self.name())
    }
}

/// The kind of memory that a tensor lies in, if it has any. Its buffer must be alive.
pub(crate) fn type_of(t: TensorPtr) -> Option<BufferType> {
    let buffer = t.root().buffer();
    if buffer.is_null() {
        return None;
    }
    // SAFETY: the buffer lives (the caller's check); the call only reads it.
    let raw = unsafe { sys::ggml_backend_buffer_get_type(buffer) };
    // SAFETY: every buffer has a type, and types are never freed.
    Some(unsafe { BufferType::from_raw(raw) })
}

/// Fails when the tensor's memory is on an RPC server that was lost. Its buffer must be alive.
pub(crate) fn check_alive(t: TensorPtr) -> Result<()> {
    type_of(t).map_or(Ok(()), BufferType::check_alive)
}

/// Whether the tensor's memory is Vulkan's, which fills whole words of four bytes only. Its buffer must be alive.
pub(crate) fn fills_words(t: TensorPtr) -> bool {
    type_of(t).and_then(BufferType::device).is_some_and(Device::is_vulkan)
}

/// Out of memory on a device, with what ggml logged.
pub(crate) fn out_of_memory(buft: BufferType, bytes: Option<usize>, log: Box<str>) -> Error {
    Error::OutOfMemory { what: format!("a buffer of type {}", buft.name()).into(), bytes, log }
}
