//! Owns C buffers. No other file frees one.

use std::ffi::c_int;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::{BufferType, out_of_memory};
use crate::device::{Device, DeviceType, meta};
use crate::dtype::DType;
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
    /// The size that was requested, since some devices don't know the size of a buffer.
    size: usize,
    /// The device, if this is a buffer over the user's memory.
    over: Option<Device>,
    /// The split states of the buffer's tensors. Dropped after the C buffer, which may ask for them.
    _sharded: Option<meta::Sharded>,
}

// SAFETY: a buffer has no thread affinity; any thread may transfer and free (docs/safety.md, "Threads").
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` only reads immutable properties.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `size` bytes, all of them zero.
    pub(crate) fn zeroed(buft: BufferType, size: usize) -> Result<Self> {
        // Vulkan's fill works on words of 4 bytes, so the size is rounded up.
        let size = if buft.device().is_some_and(Device::is_vulkan) { size.div_ceil(4).saturating_mul(4) } else { size };
        let mark = log::mark();
        // SAFETY: buffer types are never freed. C keeps nothing of ours, and we own the result.
        let raw = unsafe { guarded!(call, sys::ggml_backend_buft_alloc_buffer(buft.as_ptr(), size)) }?;
        // INVARIANT: ggml has just made the buffer, and nothing else owns it.
        let this = NonNull::new(raw).map(|raw| Self { raw, buft, size, over: None, _sharded: None });
        buft.check_alive()?;
        let this = this.ok_or_else(|| out_of_memory(buft, Some(size), log::since(mark)))?;
        this.clear(0)?;
        Ok(this)
    }

    /// Allocates leaves on a meta device, split among its members and filled with zeros
    /// (`ggml_backend_buft_alloc_buffer_n`).
    ///
    /// The caller keeps the buffer alive as long as anything can reach the tensors' data.
    pub(crate) fn sharded(buft: BufferType, tensors: &[TensorPtr], sharded: meta::Sharded) -> Result<Self> {
        let mark = log::mark();
        let mut raw: Vec<_> = tensors.iter().map(|t| t.as_ptr()).collect();
        let n = c_int::try_from(raw.len()).unwrap_or(c_int::MAX);
        // SAFETY: buffer types are never freed; the `n` tensors are live leaves without memory, and their split states
        // are known (`sharded`). The tensors keep the buffer's pointer: the caller keeps the buffer.
        let raw = unsafe { guarded!(call, sys::ggml_backend_buft_alloc_buffer_n(buft.as_ptr(), raw.as_mut_ptr(), n)) };
        // C asserts that each member's allocation succeeds. If one fails, the tensors already have the buffer with the
        // memory of the members before, and this buffer is freed.
        let failed = raw.is_err();
        let raw = raw.unwrap_or_else(|_| tensors.first().map_or(std::ptr::null_mut(), |t| t.buffer()));
        // INVARIANT: ggml has just made the buffer, and nothing else owns it.
        let this = NonNull::new(raw).map(|raw| Self { raw, buft, size: 0, over: None, _sharded: Some(sharded) });
        let this = this.filter(|_| !failed);
        if this.is_none() {
            for t in tensors {
                t.release();
            }
        }
        buft.check_alive()?;
        let this = this.ok_or_else(|| out_of_memory(buft, None, log::since(mark)))?;
        this.clear(0)?;
        Ok(this)
    }

    /// A buffer without memory. It gives a tensor without memory a buffer type.
    pub(crate) fn empty(buft: BufferType) -> Result<Self> {
        // SAFETY: buffer types are never freed. For size 0, C makes an object without memory, which is ours.
        // INVARIANT: ggml has just made the buffer, and nothing else owns it.
        let raw = unsafe { guarded!(new, sys::ggml_backend_buft_alloc_buffer(buft.as_ptr(), 0)) }?;
        Ok(Self { raw, buft, size: 0, over: None, _sharded: None })
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
        let (start, size) = (memory.as_ptr().cast_mut().cast(), memory.len());
        // SAFETY: devices are never freed, and this one can use host memory as a buffer. The memory is aligned (both
        // checked above) and outlives the buffer (by this function's `# Safety`). C's pointer is mutable, but the
        // caller never writes to the tensors.
        // INVARIANT: ggml has just made the buffer, and nothing else owns it.
        let raw = unsafe {
            guarded!(new, sys::ggml_backend_dev_buffer_from_host_ptr(device.as_ptr(), start, size, largest))
        }?;
        // SAFETY: the buffer is live; the call only reads it.
        let buft = unsafe { sys::ggml_backend_buffer_get_type(raw.as_ptr()) };
        // SAFETY: every buffer has a type, and types are never freed.
        let buft = unsafe { BufferType::from_raw(buft) };
        Ok(Self { raw, buft, size, over: Some(device), _sharded: None })
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
        const CALL: &str = "ggml_backend_tensor_alloc";
        let need = self.buft.alloc_size_of(t)?;
        let alignment = self.over.map_or_else(|| self.buft.alignment(), |device| host_alignment(device, t.dtype()))?;
        if self.buft.device().is_some_and(|d| !d.fits_wire(t)) {
            let expected = "dimensions and strides below 2^32, which is what RPC can carry";
            return Err(Error::shape(CALL, [t.info()], expected));
        }
        let fits = offset.checked_add(need).is_some_and(|end| end <= self.size);
        if !fits || !offset.is_multiple_of(alignment) || t.has_data() || t.view_src().is_some() {
            let expected = "it needs a leaf without memory, and an aligned offset in bounds of the buffer";
            return Err(Error::shape(CALL, [t.info()], expected));
        }
        // SAFETY: the buffer is live by the type's invariant, and not empty, so it has a base.
        let base = unsafe { guarded!(call, sys::ggml_backend_buffer_get_base(self.raw.as_ptr())) }?;
        // Some devices return a base that is not an address of the host. So the tensor's address is computed by
        // wrapping, not as a pointer offset in Rust's sense.
        let address = base.cast::<u8>().wrapping_add(offset);
        // SAFETY: buffer and tensor are live; the tensor is a leaf without memory, the address is aligned and in
        // bounds (all checked above). The tensor keeps the buffer's pointer: the caller keeps the buffer.
        let status =
            unsafe { guarded!(call, sys::ggml_backend_tensor_alloc(self.raw.as_ptr(), t.as_ptr(), address.cast())) }?;
        self.buft.check_alive()?;
        if status == sys::GGML_STATUS_SUCCESS {
            return Ok(());
        }
        Err(Error::Status { call: CALL, status, log: Box::default() })
    }
}

/// The alignment that a leaf needs in host memory which `device` uses. CPU kernels read elements at any address that
/// suits the type, because views begin at any element (`ops/view.rs`).
pub(crate) fn host_alignment(device: Device, dtype: DType) -> Result<usize> {
    if device.device_type() == DeviceType::Cpu && !dtype.is_quantized() {
        return Ok(dtype.type_size());
    }
    device.buffer_type().alignment()
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let raw = self.raw.as_ptr();
        // SAFETY: the buffer is live and ours by the type's invariants, and not used after this.
        unsafe { guarded!(free, sys::ggml_backend_buffer_free(raw)) };
    }
}
