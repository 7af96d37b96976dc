//! Properties of a buffer.

use ggml_sys as sys;

use super::{Buffer, BufferType};
use crate::debug::debug;
use crate::ffi;
use crate::guard::guarded;

/// The usage of a buffer (`ggml_backend_buffer_usage`).
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::BufferUsage;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("w", DType::F32, [4])?;
/// let weights = builder.place(Device::cpu()?)?;
/// assert_eq!(weights.buffers()[0].usage(), BufferUsage::Weights);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_buffer_usage")]
#[doc(alias = "ggml_backend_buffer_set_usage")]
#[doc(alias = "ggml_backend_multi_buffer_set_usage")]
#[doc(alias = "ggml_backend_meta_buffer_set_usage")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferUsage {
    /// Any content.
    Any,
    /// Weights: the scheduler runs operations where their weights are.
    Weights,
    /// Intermediate results.
    Compute,
}

impl Buffer {
    /// The buffer's name, which is mostly that of its type (`ggml_backend_buffer_name`).
    #[doc(alias = "ggml_backend_buffer_name")]
    pub fn name(&self) -> String {
        // SAFETY: the buffer is live by the type's invariant, and so is its name.
        unsafe { ffi::text_of(sys::ggml_backend_buffer_name, self.as_ptr()) }
    }

    /// The buffer's type (`ggml_backend_buffer_get_type`).
    #[doc(alias = "ggml_backend_buffer_get_type")]
    pub fn buffer_type(&self) -> BufferType {
        // SAFETY: the buffer is live by the type's invariant; the call only reads it.
        let raw = unsafe { sys::ggml_backend_buffer_get_type(self.as_ptr()) };
        // SAFETY: every buffer has a type, and types are never freed.
        unsafe { BufferType::from_raw(raw) }
    }

    /// The buffer's size in bytes (`ggml_backend_buffer_get_size`).
    #[doc(alias = "ggml_backend_buffer_get_size")]
    pub fn size(&self) -> usize {
        // SAFETY: the buffer is live by the type's invariant; the call only reads it.
        unsafe { sys::ggml_backend_buffer_get_size(self.as_ptr()) }
    }

    /// The buffer's usage (`ggml_backend_buffer_get_usage`).
    #[doc(alias = "ggml_backend_buffer_get_usage")]
    pub fn usage(&self) -> BufferUsage {
        // SAFETY: the buffer is live by the type's invariant; the call only reads it.
        match unsafe { sys::ggml_backend_buffer_get_usage(self.as_ptr()) } {
            sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS => BufferUsage::Weights,
            sys::GGML_BACKEND_BUFFER_USAGE_COMPUTE => BufferUsage::Compute,
            _ => BufferUsage::Any,
        }
    }

    /// Whether the CPU can address the buffer directly (`ggml_backend_buffer_is_host`).
    #[doc(alias = "ggml_backend_buffer_is_host")]
    pub fn is_host(&self) -> bool {
        // SAFETY: the buffer is live by the type's invariant; the call only reads it.
        let is = unsafe { sys::ggml_backend_buffer_is_host(self.as_ptr()) };
        // C also calls the memory of a meta device of CPUs host memory, but buffers of that device have no addresses.
        is && self.buffer_type().is_host()
    }

    /// Sets each byte of the buffer to `value` (`ggml_backend_buffer_clear`).
    #[doc(alias = "ggml_backend_buffer_clear")]
    pub(crate) fn clear(&self, value: u8) -> crate::Result<()> {
        // SAFETY: the buffer is live by the type's invariant; the call fills it and keeps nothing.
        unsafe { guarded!(call, sys::ggml_backend_buffer_clear(self.as_ptr(), value)) }?;
        self.buffer_type().check_alive()
    }
}

debug!(Buffer, |this| type = &this.buffer_type(), size = &this.size(), usage = &this.usage());
