//! The owner of a C buffer, and the only file that frees one.

use std::ptr::NonNull;

use ggml_sys as sys;

use super::{BufferType, out_of_memory};
use crate::error::{Error, Result};
use crate::tensor::ptr::TensorPtr;
use crate::{guard, log};

/// Device memory that is freed when this is dropped (`ggml_backend_buffer_t`).
///
/// # Invariants
///
/// The pointer is a live buffer that nothing else frees.
#[derive(Debug)]
pub(crate) struct Buffer {
    raw: NonNull<sys::ggml_backend_buffer>,
    buft: BufferType,
    /// For a device that knows no size, what was asked for.
    size: usize,
}

// SAFETY: a buffer belongs to no thread; freeing and transfers may happen on any (docs/safety.md, "Threads").
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference only immutable properties are read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `size` bytes, all of them zero.
    pub(crate) fn zeroed(buft: BufferType, size: usize) -> Result<Self> {
        let mark = log::mark();
        let raw = guard::call("ggml_backend_buft_alloc_buffer", || {
            // SAFETY: the type lives for ever. C keeps nothing of ours; the result is owned by us.
            unsafe { sys::ggml_backend_buft_alloc_buffer(buft.as_ptr(), size) }
        })?;
        // INVARIANT: fresh from ggml, and nobody else has it.
        let this = NonNull::new(raw).map(|raw| Self { raw, buft, size });
        buft.check_alive()?;
        let this = this.ok_or_else(|| out_of_memory(buft, Some(size), log::since(mark)))?;
        guard::call("ggml_backend_buffer_clear", || {
            // SAFETY: the buffer is live; the call fills it and keeps nothing.
            unsafe { sys::ggml_backend_buffer_clear(this.raw.as_ptr(), 0) }
        })?;
        buft.check_alive()?;
        Ok(this)
    }

    /// Tells the scheduler that the buffer holds weights: it then runs operations where their weights are.
    pub(crate) fn mark_as_weights(&mut self) {
        // SAFETY: the buffer is live; the call sets a field.
        unsafe { sys::ggml_backend_buffer_set_usage(self.raw.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS) };
    }

    /// Gives `t`, which has no memory yet, the bytes from `offset` on.
    ///
    /// The caller keeps the buffer alive as long as anything can reach the tensor's data.
    pub(crate) fn place(&self, t: TensorPtr, offset: usize) -> Result<()> {
        let need = self.buft.alloc_size(t)?;
        let alignment = self.buft.alignment()?;
        if self.buft.device().is_some_and(|d| !d.fits_wire(t)) {
            return Err(Error::Shape {
                op: "ggml_backend_tensor_alloc",
                operands: [t.info()].into(),
                expected: "dimensions and strides below 2^32, which is what RPC can carry".into(),
            });
        }
        let fits = offset.checked_add(need).is_some_and(|end| end <= self.size);
        if !fits || !offset.is_multiple_of(alignment) || t.has_data() || t.view_src().is_some() {
            return Err(Error::Shape {
                op: "ggml_backend_tensor_alloc",
                operands: [t.info()].into(),
                expected: "a leaf without memory, and an aligned place inside the buffer".into(),
            });
        }
        let base = guard::call("ggml_backend_buffer_get_base", || {
            // SAFETY: the buffer is live and not empty, so it has a base.
            unsafe { sys::ggml_backend_buffer_get_base(self.raw.as_ptr()) }
        })?;
        // Some devices give addresses that are no memory of ours: no pointer arithmetic in Rust's sense.
        let address = base.cast::<u8>().wrapping_add(offset);
        let status = guard::call("ggml_backend_tensor_alloc", || {
            // SAFETY: buffer and tensor are live; the tensor is a leaf without memory, the place is aligned and inside
            // the buffer (all checked above). The tensor keeps the buffer's pointer: the caller keeps the buffer.
            unsafe { sys::ggml_backend_tensor_alloc(self.raw.as_ptr(), t.as_ptr(), address.cast()) }
        })?;
        self.buft.check_alive()?;
        if status == sys::GGML_STATUS_SUCCESS {
            return Ok(());
        }
        Err(Error::Status { call: "ggml_backend_tensor_alloc", status, log: Box::default() })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let raw = self.raw.as_ptr();
        guard::free("ggml_backend_buffer_free", || {
            // SAFETY: live and ours by the type's invariants, and used by nothing after this.
            unsafe { sys::ggml_backend_buffer_free(raw) }
        });
    }
}
