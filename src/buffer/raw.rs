//! Owns C buffers. No other file frees one.

use std::ffi::c_int;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::{BufferType, out_of_memory};
use crate::device::{Device, meta};
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::header::TensorPtr;
use crate::log;

/// Device memory (`ggml_backend_buffer_t`), owned by the [`Weights`](crate::Weights) or the [`State`](crate::State) in
/// it.
///
/// ```
/// # use ggml::prelude::*;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("w", DType::F32, [1024])?;
/// let weights = builder.place(Device::cpu()?)?;
/// let [buffer] = weights.buffers() else { panic!("one for all tensors") };
/// assert!(buffer.is_host() && buffer.size() >= 4096);
/// assert_eq!(buffer.buffer_type(), Device::cpu()?.buffer_type());
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Invariants
///
/// The pointer is a live buffer that this value alone frees.
#[doc(alias = "ggml_backend_buffer_t")]
#[doc(alias = "ggml_backend_buffer_free")]
pub struct Buffer {
    raw: NonNull<sys::ggml_backend_buffer>,
    buft: BufferType,
    /// The requested size, since some devices don't know theirs.
    size: usize,
    /// The split states of its tensors. Dropped after the C buffer, which may ask for them.
    _divided: Option<meta::Divided>,
}

// SAFETY: a buffer has no thread affinity; any thread may transfer and free (docs/safety.md, "Threads").
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` only reads immutable properties.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `size` bytes, all of them zero.
    pub(crate) fn zeroed(buft: BufferType, size: usize) -> Result<Self> {
        // Vulkan's fill works on words of 4 bytes.
        let size = if buft.device().is_some_and(Device::is_vulkan) { size.div_ceil(4).saturating_mul(4) } else { size };
        let mark = log::mark();
        // SAFETY: buffer types are never freed. C keeps nothing of ours, and we own the result.
        let raw = unsafe { guarded!(call, sys::ggml_backend_buft_alloc_buffer(buft.as_ptr(), size)) }?;
        // INVARIANT: just made by ggml, and owned by nothing else.
        let this = NonNull::new(raw).map(|raw| Self { raw, buft, size, _divided: None });
        buft.check_alive()?;
        let this = this.ok_or_else(|| out_of_memory(buft, Some(size), log::since(mark)))?;
        this.clear(0)?;
        Ok(this)
    }

    /// Allocates leaves on a meta device, split among its members and filled with zeros
    /// (`ggml_backend_buft_alloc_buffer_n`).
    ///
    /// The caller keeps the buffer alive as long as anything can reach the tensors' data.
    pub(crate) fn divided(buft: BufferType, tensors: &[TensorPtr], divided: meta::Divided) -> Result<Self> {
        let mark = log::mark();
        let mut raw: Vec<_> = tensors.iter().map(|t| t.as_ptr()).collect();
        let n = c_int::try_from(raw.len()).unwrap_or(c_int::MAX);
        // SAFETY: buffer types are never freed; the `n` tensors are live leaves without memory, and their split
        // states are known (`divided`). They keep the buffer's pointer: the caller keeps the buffer.
        let raw = unsafe { guarded!(call, sys::ggml_backend_buft_alloc_buffer_n(buft.as_ptr(), raw.as_mut_ptr(), n)) };
        buft.check_alive()?;
        // C asserts that each member's allocation succeeds.
        let raw = raw.map_err(|_| out_of_memory(buft, None, log::since(mark)))?;
        // INVARIANT: just made by ggml, and owned by nothing else.
        let this = NonNull::new(raw).map(|raw| Self { raw, buft, size: 0, _divided: Some(divided) });
        let this = this.ok_or_else(|| out_of_memory(buft, None, log::since(mark)))?;
        this.clear(0)?;
        Ok(this)
    }

    /// A buffer without memory, to give a tensor a buffer type.
    pub(crate) fn empty(buft: BufferType) -> Result<Self> {
        // SAFETY: buffer types are never freed. For size 0, C makes an object without memory, which is ours.
        // INVARIANT: just made by ggml, and owned by nothing else.
        let raw = unsafe { guarded!(new, sys::ggml_backend_buft_alloc_buffer(buft.as_ptr(), 0)) }?;
        Ok(Self { raw, buft, size: 0, _divided: None })
    }

    /// A buffer over host memory, zero-copy (`ggml_backend_dev_buffer_from_host_ptr`), in which no tensor is larger
    /// than `largest`.
    ///
    /// # Safety
    ///
    /// The memory must outlive the result, and nothing may write to it meanwhile.
    pub(crate) unsafe fn from_host_memory(device: Device, memory: &[u8], largest: usize) -> Result<Self> {
        const CALL: &str = "ggml_backend_dev_buffer_from_host_ptr";
        let refuse = |reason: String| Error::unsupported(CALL, [], device.name(), reason);
        if !device.capabilities()?.buffer_from_host {
            return Err(refuse("the device can't use host memory; use its own buffer type".into()));
        }
        let alignment = device.buffer_type().alignment()?;
        if memory.is_empty() || memory.as_ptr().align_offset(alignment) != 0 {
            return Err(refuse(format!("the memory must not be empty, and begin at a multiple of {alignment} bytes")));
        }
        // SAFETY: devices are never freed, and this one has such buffers. The memory is aligned (both checked
        // above) and outlives the buffer (by contract). C's pointer is mutable, but the caller never writes to the
        // tensors.
        // INVARIANT: just made by ggml, and owned by nothing else.
        let raw = unsafe {
            guarded!(
                new,
                sys::ggml_backend_dev_buffer_from_host_ptr(
                    device.as_ptr(),
                    memory.as_ptr().cast_mut().cast(),
                    memory.len(),
                    largest
                )
            )
        }?;
        // SAFETY: the buffer is live; the call only reads it.
        let buft = unsafe { sys::ggml_backend_buffer_get_type(raw.as_ptr()) };
        // SAFETY: every buffer has a type, and types are never freed.
        let buft = unsafe { BufferType::from_raw(buft) };
        Ok(Self { raw, buft, size: memory.len(), _divided: None })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_backend_buffer {
        self.raw.as_ptr()
    }

    /// Marks the buffer as holding weights: the scheduler runs operations where their weights are.
    pub(crate) fn mark_as_weights(&mut self) {
        // SAFETY: the buffer is live; the call sets a field.
        unsafe { sys::ggml_backend_buffer_set_usage(self.raw.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS) };
    }

    /// Places `t`, which has no memory yet, at byte `offset`.
    ///
    /// The caller keeps the buffer alive as long as anything can reach the tensor's data.
    pub(crate) fn place(&self, t: TensorPtr, offset: usize) -> Result<()> {
        let need = self.buft.alloc_size_of(t)?;
        let alignment = self.buft.alignment()?;
        if self.buft.device().is_some_and(|d| !d.fits_wire(t)) {
            return Err(Error::Shape {
                call: "ggml_backend_tensor_alloc",
                operands: [t.info()].into(),
                expected: "dimensions and strides below 2^32, which is what RPC can carry".into(),
            });
        }
        let fits = offset.checked_add(need).is_some_and(|end| end <= self.size);
        if !fits || !offset.is_multiple_of(alignment) || t.has_data() || t.view_src().is_some() {
            return Err(Error::Shape {
                call: "ggml_backend_tensor_alloc",
                operands: [t.info()].into(),
                expected: "it needs a leaf without memory, and an aligned offset in bounds of the buffer".into(),
            });
        }
        // SAFETY: the buffer is live by the type's invariant, and not empty, so it has a base.
        let base = unsafe { guarded!(call, sys::ggml_backend_buffer_get_base(self.raw.as_ptr())) }?;
        // Some devices return a base that is no host address, so it must not be a pointer offset in Rust's sense.
        let address = base.cast::<u8>().wrapping_add(offset);
        // SAFETY: buffer and tensor are live; the tensor is a leaf without memory, the address is aligned and in
        // bounds (all checked above). The tensor keeps the buffer's pointer: the caller keeps the buffer.
        let status =
            unsafe { guarded!(call, sys::ggml_backend_tensor_alloc(self.raw.as_ptr(), t.as_ptr(), address.cast())) }?;
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
        // SAFETY: live and ours by the type's invariants, and not used after this.
        unsafe { guarded!(free, sys::ggml_backend_buffer_free(raw)) };
    }
}
