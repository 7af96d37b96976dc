//! Transfers tensor data between Rust and devices. Callers have checked that the tensor has memory.

use std::ffi::c_void;

use ggml_sys as sys;

use crate::buffer;
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::header::{Owner, TensorPtr};
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
    check_span(call, t, offset, data.len())?;
    if !t.is_contiguous() {
        return Err(not_contiguous(call, t));
    }
    let aligned: Vec<u64>;
    let mut from = data.as_ptr().cast::<c_void>();
    if t.owner() == Owner::Packed {
        if t.view_src().is_some() || (offset, Some(data.len())) != (0, t.span()) {
            return Err(Error::Packed { call, tensor: t.info() });
        }
        // Repacking code reads whole blocks, which need alignment; plain copies don't.
        if !from.cast::<u64>().is_aligned() {
            aligned = list::collect(data.chunks(size_of::<u64>()).map(word), "an aligned copy of the data")?;
            from = aligned.as_ptr().cast();
        }
    }
    let raw = t.as_ptr();
    let _alone = meta::transfers(call, t, offset, data.len())?;
    // SAFETY: `t` is live and has memory (the caller's check). offset + size are in bounds (check_span); C's own
    // check can overflow (H4). Repacked weights are set as a whole and from aligned data (above, H27). The call
    // is synchronous: C keeps no pointer to the data.
    unsafe { guarded!(call, sys::ggml_backend_tensor_set(raw, from, offset, data.len())) }?;
    buffer::check_alive(t)
}

/// Up to 8 bytes as a word; missing bytes are zero.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; size_of::<u64>()];
    word.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
    u64::from_ne_bytes(word)
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

/// Copies a tensor into another one, on any devices. Both must have buffers.
pub(crate) fn copy(call: &'static str, from: TensorPtr, to: TensorPtr) -> Result<()> {
    check_copy(call, from, to)?;
    // SAFETY: both are live and have memory (the caller's check). check_copy checked what C asserts: one layout,
    // and no shared memory. The copy is synchronous: C keeps nothing.
    unsafe { guarded!(call, sys::ggml_backend_tensor_copy(from.as_ptr(), to.as_ptr())) }?;
    buffer::check_alive(from)?;
    buffer::check_alive(to)
}

/// Fails unless both have the same type and shape, are contiguous, and share no memory.
pub(crate) fn check_copy(call: &'static str, from: TensorPtr, to: TensorPtr) -> Result<()> {
    check_plain(call, from)?;
    check_plain(call, to)?;
    let operands = || [from.info(), to.info()].into();
    if from.dtype() != to.dtype() {
        return Err(Error::DType { call, operands: operands(), expected: "both must have the same type".into() });
    }
    let alike = from.ne() == to.ne() && from.is_contiguous() && to.is_contiguous() && from.nb() == to.nb();
    if !alike {
        let expected = "both must have the same shape, and be contiguous".into();
        return Err(Error::Shape { call, operands: operands(), expected });
    }
    // For copies between devices, C takes a meta buffer's base for a host address.
    for device in [from, to].into_iter().filter_map(|t| buffer::type_of(t)?.device()) {
        meta::before_use(call, device, "tensors on a meta device can't be copied; read this one, and set the other")?;
    }
    if from.root() == to.root() {
        let expected = "they must not share memory; one is a part of the other's tensor".into();
        return Err(Error::Shape { call, operands: operands(), expected });
    }
    Ok(())
}

/// Reads a tensor in ggml's element order, whatever its strides.
pub(crate) fn read<T: Element>(call: &'static str, t: TensorPtr) -> Result<Vec<T>> {
    check_type::<T>(call, t)?;
    let elements = t.elements();
    let size = size_of::<T>();
    let span = t.span().unwrap_or(usize::MAX);
    let mut out = zeroed::<T>(span.div_ceil(size).max(elements))?;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut out);
    read_bytes(call, t, bytes.get_mut(..span).unwrap_or_default())?;
    if !t.is_contiguous() {
        out = gather(&out, t.ne(), t.nb().map(|nb| nb / size))?;
    }
    out.truncate(elements);
    Ok(out)
}

/// Reads a contiguous tensor into `out`, which must have its length.
pub(crate) fn read_into<T: Element>(call: &'static str, t: TensorPtr, out: &mut [T]) -> Result<()> {
    check_whole::<T>(call, t, out.len())?;
    read_bytes(call, t, bytemuck::cast_slice_mut(out))
}

/// Reads the raw bytes of a contiguous tensor of any type, in ggml's block layout.
pub(crate) fn read_raw(call: &'static str, t: TensorPtr) -> Result<Vec<u8>> {
    if !t.is_contiguous() {
        return Err(not_contiguous(call, t));
    }
    let mut out = zeroed::<u8>(t.span().unwrap_or(usize::MAX))?;
    read_bytes(call, t, &mut out)?;
    Ok(out)
}

fn read_bytes(call: &'static str, t: TensorPtr, out: &mut [u8]) -> Result<()> {
    check_plain(call, t)?;
    check_span(call, t, 0, out.len())?;
    // A view of placed memory has a buffer only during an allocation, and RPC needs one: use its root.
    let (from, offset) = if t.buffer().is_null() { (t.root(), t.view_offs()) } else { (t, 0) };
    let (raw, size, to) = (from.as_ptr(), out.len(), out.as_mut_ptr().cast::<c_void>());
    let _alone = meta::transfers(call, t, 0, size)?;
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
    Error::Shape {
        call,
        operands: [t.info()].into(),
        expected: "its elements must lie in order and without gaps; use `cont`".into(),
    }
}

fn zeroed<T: bytemuck::Pod>(len: usize) -> Result<Vec<T>> {
    list::filled(T::zeroed(), len, "reading a tensor")
}

/// Gathers elements by strides, counted in elements.
fn gather<T: Element>(from: &[T], ne: [i64; 4], stride: [usize; 4]) -> Result<Vec<T>> {
    let [n0, n1, n2, n3] = ne.map(|n| usize::try_from(n).unwrap_or(0));
    let mut out = zeroed::<T>(n0 * n1 * n2 * n3)?;
    let mut to = out.iter_mut();
    for i3 in 0..n3 {
        for i2 in 0..n2 {
            for i1 in 0..n1 {
                let row = i1 * stride[1] + i2 * stride[2] + i3 * stride[3];
                for i0 in 0..n0 {
                    if let (Some(to), Some(&value)) = (to.next(), from.get(row + i0 * stride[0])) {
                        *to = value;
                    }
                }
            }
        }
    }
    Ok(out)
}
