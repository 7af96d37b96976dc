//! What can be asked of a buffer.

use std::fmt;

use ggml_sys as sys;

use super::{Buffer, BufferType};
use crate::{ffi, guard};

/// What a buffer is for (`ggml_backend_buffer_usage`).
#[doc(alias = "ggml_backend_buffer_usage")]
#[doc(alias = "ggml_backend_buffer_set_usage")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferUsage {
    /// Anything.
    Any,
    /// Weights: operations run where they lie.
    Weights,
    /// Intermediate results.
    Compute,
}

impl Buffer {
    /// The name, which is mostly that of its type (`ggml_backend_buffer_name`).
    #[doc(alias = "ggml_backend_buffer_name")]
    pub fn name(&self) -> String {
        // SAFETY: live by the type's invariant; the text is copied at once.
        let text = unsafe { sys::ggml_backend_buffer_name(self.as_ptr()) };
        // SAFETY: a C string or NULL, see above.
        unsafe { ffi::string(text) }
    }

    /// The kind of memory (`ggml_backend_buffer_get_type`).
    #[doc(alias = "ggml_backend_buffer_get_type")]
    pub fn buffer_type(&self) -> BufferType {
        // SAFETY: live by the type's invariant; the call only reads it.
        let raw = unsafe { sys::ggml_backend_buffer_get_type(self.as_ptr()) };
        // SAFETY: every buffer has a type, and types are never freed.
        unsafe { BufferType::from_raw(raw) }
    }

    /// Its bytes (`ggml_backend_buffer_get_size`).
    #[doc(alias = "ggml_backend_buffer_get_size")]
    pub fn size(&self) -> usize {
        // SAFETY: live by the type's invariant; the call only reads it.
        unsafe { sys::ggml_backend_buffer_get_size(self.as_ptr()) }
    }

    /// What it is for (`ggml_backend_buffer_get_usage`).
    #[doc(alias = "ggml_backend_buffer_get_usage")]
    pub fn usage(&self) -> BufferUsage {
        // SAFETY: live by the type's invariant; the call only reads it.
        match unsafe { sys::ggml_backend_buffer_get_usage(self.as_ptr()) } {
            sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS => BufferUsage::Weights,
            sys::GGML_BACKEND_BUFFER_USAGE_COMPUTE => BufferUsage::Compute,
            _ => BufferUsage::Any,
        }
    }

    /// Whether the processor can address it directly (`ggml_backend_buffer_is_host`).
    #[doc(alias = "ggml_backend_buffer_is_host")]
    pub fn is_host(&self) -> bool {
        // SAFETY: live by the type's invariant; the call only reads it.
        let is = unsafe { sys::ggml_backend_buffer_is_host(self.as_ptr()) };
        // C says so of several CPUs that work as one, too.
        is && self.buffer_type().is_host()
    }

    /// Fills the whole buffer with one byte (`ggml_backend_buffer_clear`).
    #[doc(alias = "ggml_backend_buffer_clear")]
    pub(crate) fn clear(&self, value: u8) -> crate::Result<()> {
        guard::call("ggml_backend_buffer_clear", || {
            // SAFETY: the buffer is live; the call fills it and keeps nothing.
            unsafe { sys::ggml_backend_buffer_clear(self.as_ptr(), value) }
        })?;
        self.buffer_type().check_alive()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("type", &self.buffer_type())
            .field("size", &self.size())
            .field("usage", &self.usage())
            .finish()
    }
}
