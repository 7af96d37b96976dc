//! Transfers tensor data between Rust and devices. Callers have checked that the tensor has memory.

use std::ffi::c_void;

use ggml_sys as sys;

use crate::buffer;
use crate::callback;
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::header::{Layout, Owner, TensorPtr};
use crate::list;

/// Fails if `T` is not the tensor's element type.
pub(crate) fn check_type<T: Element>(call: &'static str, t: TensorPtr) -> Result<()> {
    if t.dtype() == T::DTYPE {
        return Ok(());
    }
    Err(Error::ElementType { call, tensor: t.info(), asked: T::NAME })
}

/// Fails unless the tensor is contiguous and has `got` elements of type `T`.
pub(crate) fn check_whole<T: Element>(call: &'static str, t: TensorPtr, got: usize) -> Result<()> {
    check_type::<T>(call, t)?;
    let expected = t.elements();
    if got != expected {
        return Err(Error::Length { call, tensor: t.info(), expected, got, unit: "elements" });
    }
    if !t.is_contiguous() {
        return Err(not_contiguous(call, t));
    }
    Ok(())
}

/// Overwrites the whole of a contiguous tensor.
pub(crate) fn write<T: Element>(call: &'static str, t: TensorPtr, data: &[T]) -> Result<()> {
    check_whole::<T>(call, t, data.len())?;
    write_bytes(call, t, 0, bytemuck::cast_slice(data))
}

/// Overwrites `data.len()` elements from element `offset` on.
pub(crate) fn write_at<T: Element>(call: &'static str, t: TensorPtr, offset: usize, data: &[T]) -> Result<()> {
    check_type::<T>(call, t)?;
    let size = t.elements();
    if offset.checked_add(data.len()).is_none_or(|end| end > size) {
        return Err(Error::Range { call, tensor: t.info(), offset, len: data.len(), size });
    }
    write_bytes(call, t, offset * size_of::<T>(), bytemuck::cast_slice(data))
}

/// Overwrites the whole of a contiguous tensor of any type with raw bytes, in ggml's block layout.
pub(crate) fn write_raw(call: &'static str, t: TensorPtr, data: &[u8]) -> Result<()> {
    let expected = t.span().unwrap_or(usize::MAX);
    if data.len() != expected {
        return Err(Error::Length { call, tensor: t.info(), expected, got: data.len(), unit: "bytes" });
    }
    write_bytes(call, t, 0, data)
}

/// Overwrites bytes of a contiguous tensor of any type, from byte `offset` on.
pub(crate) fn write_bytes(call: &'static str, t: TensorPtr, offset: usize, data: &[u8]) -> Result<()> {
    callback::check_reentry(call)?;
    check_span(call, t, offset, data.len())?;
    if !t.is_contiguous() {
        return Err(not_contiguous(call, t));
    }
    let (mut copy, mut from) = (Vec::new(), data);
    if t.owner() == Owner::Packed {
        if t.view_src().is_some() || (offset, Some(data.len())) != (0, t.span()) {
            return Err(Error::Packed { call, tensor: t.info() });
        }
        // The code that repacks reads whole blocks, which need alignment. Plain copies need none.
        from = list::aligned(data, &mut copy)?;
    }
    let (raw, from, size) = (t.as_ptr(), from.as_ptr().cast(), data.len());
    let _alone = meta::transfers(call, t, offset, size)?;
    // SAFETY: `t` is live and has memory (the caller's check). offset + size are in bounds (check_span); C's own
    // check can overflow (H4). Repacked weights are set as a whole and from aligned data (above, H27). The call
    // is synchronous: C keeps no pointer to the data.
    unsafe { guarded!(call, sys::ggml_backend_tensor_set(raw, from, offset, size)) }?;
    buffer::check_alive(t)
}

/// Fails for repacked weights, whose bytes are not those of the elements (H27). C has no function that reads them, and
/// would call NULL.
pub(crate) fn check_plain(call: &'static str, t: TensorPtr) -> Result<()> {
    if t.owner() == Owner::Packed { Err(Error::Packed { call, tensor: t.info() }) } else { Ok(()) }
}

/// Fills the whole tensor with zero bytes.
pub(crate) fn zero(t: TensorPtr) -> Result<()> {
    fill("ggml_backend_tensor_memset", t, 0)
}

/// Sets each byte of the tensor to `value`, including gaps between elements.
pub(crate) fn fill(call: &'static str, t: TensorPtr, value: u8) -> Result<()> {
    callback::check_reentry(call)?;
    check_plain(call, t)?;
    let size = t.span().unwrap_or(0);
    let raw = t.as_ptr();
    let _alone = meta::transfers(call, t, 0, size)?;
    if buffer::fills_words(t) && !(size.is_multiple_of(4) && t.view_offs().is_multiple_of(4)) {
        let data = list::filled(value, size, "the bytes to fill a tensor with")?;
        // SAFETY: `t` is live and has memory (the caller's check); `data` is as long. The call is synchronous.
        unsafe { guarded!(call, sys::ggml_backend_tensor_set(raw, data.as_ptr().cast(), 0, size)) }?;
        return buffer::check_alive(t);
    }
    // SAFETY: `t` is live and has memory (the caller's check); `size` is the tensor's. The call is synchronous.
    unsafe { guarded!(call, sys::ggml_backend_tensor_memset(raw, value, 0, size)) }?;
    buffer::check_alive(t)
}

/// Copies a tensor into another one, on any devices. Both tensors must have buffers.
pub(crate) fn copy(call: &'static str, from: TensorPtr, to: TensorPtr) -> Result<()> {
    callback::check_reentry(call)?;
    check_copy(call, from, to)?;
    // SAFETY: both tensors are live and have memory (the caller's check). check_copy has checked what C asserts: they
    // have one layout, and share no memory. The copy is synchronous: C keeps nothing.
    unsafe { guarded!(call, sys::ggml_backend_tensor_copy(from.as_ptr(), to.as_ptr())) }?;
    buffer::check_alive(from)?;
    buffer::check_alive(to)
}

/// Fails unless both tensors have the same type and shape, are contiguous, and share no memory.
pub(crate) fn check_copy(call: &'static str, from: TensorPtr, to: TensorPtr) -> Result<()> {
    check_plain(call, from)?;
    check_plain(call, to)?;
    let operands = || [from.info(), to.info()];
    if from.dtype() != to.dtype() {
        return Err(Error::DType {
            call,
            operands: operands().into(),
            expected: "both must have the same type".into(),
        });
    }
    let alike = from.ne() == to.ne() && from.is_contiguous() && to.is_contiguous() && from.nb() == to.nb();
    if !alike {
        return Err(Error::shape(call, operands(), "both must have the same shape, and be contiguous"));
    }
    // When C copies between devices, it takes the base of a meta device's buffer for a host address.
    for device in [from, to].into_iter().filter_map(|t| buffer::type_of(t)?.device()) {
        meta::before_use(call, device, "tensors on a meta device can't be copied; read this one, and set the other")?;
    }
    if from.root() == to.root() {
        return Err(Error::shape(call, operands(), "they must not share memory; one is a part of the other's tensor"));
    }
    Ok(())
}

/// Reads a tensor in ggml's element order, whatever its strides.
pub(crate) fn read<T: Element>(call: &'static str, t: TensorPtr) -> Result<Vec<T>> {
    check_type::<T>(call, t)?;
    let mut out = zeroed::<T>(t.elements())?;
    read_elements(call, t, bytemuck::cast_slice_mut(&mut out))?;
    Ok(out)
}

/// Reads a tensor of any type in ggml's element order into `out`, which has as many bytes as the tensor's elements
/// take.
fn read_elements(call: &'static str, t: TensorPtr, out: &mut [u8]) -> Result<()> {
    if t.is_contiguous() {
        return read_bytes(call, t, out);
    }
    let mut all = zeroed::<u8>(t.span().unwrap_or(usize::MAX))?;
    read_bytes(call, t, &mut all)?;
    let mut rest = out;
    t.layout().pieces(|range| {
        let to = rest.split_off_mut(..range.len());
        if let (Some(to), Some(from)) = (to, all.get(range)) {
            to.copy_from_slice(from);
        }
    });
    Ok(())
}

/// Reads a contiguous tensor into `out`, which must have its length.
pub(crate) fn read_into<T: Element>(call: &'static str, t: TensorPtr, out: &mut [T]) -> Result<()> {
    check_whole::<T>(call, t, out.len())?;
    read_bytes(call, t, bytemuck::cast_slice_mut(out))
}

/// Reads all bytes of a tensor of any type, in ggml's block layout and element order.
pub(crate) fn read_raw(call: &'static str, t: TensorPtr) -> Result<Vec<u8>> {
    let mut out = zeroed::<u8>(Layout::packed(t.dtype(), t.ne()).span().unwrap_or(usize::MAX))?;
    read_elements(call, t, &mut out)?;
    Ok(out)
}

fn read_bytes(call: &'static str, t: TensorPtr, out: &mut [u8]) -> Result<()> {
    read_bytes_at(call, t, 0, out)
}

/// Reads bytes of a tensor of any type, from a byte offset on.
pub(crate) fn read_bytes_at(call: &'static str, t: TensorPtr, at: usize, out: &mut [u8]) -> Result<()> {
    callback::check_reentry(call)?;
    check_plain(call, t)?;
    check_span(call, t, at, out.len())?;
    // Outside of an allocation, a view of weights or a state has no buffer. RPC needs a buffer, so its root is read.
    let (from, offset) = if t.buffer().is_null() { (t.root(), t.view_offs() + at) } else { (t, at) };
    let (raw, size, to) = (from.as_ptr(), out.len(), out.as_mut_ptr().cast::<c_void>());
    let _alone = meta::transfers(call, t, at, size)?;
    // SAFETY: `t` is live and has memory (the caller's check); offset + size are in bounds (check_span), and `out`
    // has that size. A view lies inside its root (H1). The call is synchronous: C keeps no pointer to `out`.
    unsafe { guarded!(call, sys::ggml_backend_tensor_get(raw, to, offset, size)) }?;
    buffer::check_alive(t)
}

fn check_span(call: &'static str, t: TensorPtr, offset: usize, len: usize) -> Result<()> {
    let size = t.span().unwrap_or(0);
    if offset.checked_add(len).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::Range { call, tensor: t.info(), offset, len, size })
}

pub(super) fn not_contiguous(call: &'static str, t: TensorPtr) -> Error {
    Error::shape(call, [t.info()], "its elements must lie in order and without gaps; use `cont`")
}

fn zeroed<T: bytemuck::Pod>(len: usize) -> Result<Vec<T>> {
    list::filled(T::zeroed(), len, "reading a tensor")
}
