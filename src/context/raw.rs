//! A C context over memory that Rust allocated.

use std::ptr::NonNull;

use ggml_sys as sys;

use crate::error::Result;
use crate::guard::guarded;
use crate::{guard, list};

/// The unit of pool memory: ggml needs pools aligned to 16 bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Unit([u8; 16]);

/// A pool of tensor and graph headers, without tensor data.
///
/// # Invariants
///
/// `raw` is a live context over `_memory`, which is never resized, and nothing else frees it.
pub(crate) struct Pool {
    raw: NonNull<sys::ggml_context>,
    _memory: Vec<Unit>,
}

impl Pool {
    /// A pool of at least this many bytes.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        guard::install()?;
        let units = bytes.div_ceil(size_of::<Unit>()).max(1);
        let mut memory = list::filled(Unit([0; 16]), units, "a pool of tensor headers")?;
        let params = sys::ggml_init_params {
            mem_size: units * size_of::<Unit>(),
            mem_buffer: memory.as_mut_ptr().cast(),
            no_alloc: true,
        };
        // SAFETY: the memory has this length, is aligned (`Unit`), and outlives the context (type's invariant).
        let raw = unsafe { guarded!(new, sys::ggml_init(params)) }.map_err(guard::or_out_of_memory)?;
        Ok(Self { raw, _memory: memory })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_context {
        self.raw.as_ptr()
    }

    /// Bytes of the pool in use.
    pub(crate) fn used(&self) -> usize {
        // SAFETY: the context is live by the type's invariant; the call only reads it.
        unsafe { sys::ggml_used_mem(self.as_ptr()) }
    }

    /// Bytes of the pool not yet in use.
    pub(crate) fn free(&self) -> usize {
        self.len().saturating_sub(self.used())
    }

    /// Bytes of the pool in total.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the context is live by the type's invariant; the call only reads it.
        unsafe { sys::ggml_get_mem_size(self.as_ptr()) }
    }

    /// Frees all objects of the pool.
    ///
    /// # Safety
    ///
    /// No object of the pool may be used any more.
    pub(crate) unsafe fn reset(&mut self) {
        // SAFETY: the context is live by the type's invariant; no object is used any more, by this function's `#
        // Safety`.
        unsafe { sys::ggml_reset(self.as_ptr()) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the context is live and ours by the type's invariant. C doesn't own the pool's memory, which is freed
        // afterwards.
        unsafe { sys::ggml_free(self.as_ptr()) };
    }
}
