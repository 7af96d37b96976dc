//! Strided transfers: equally long pieces at equal distances, such as columns of a matrix or one head of a KV cache.

use std::ffi::c_void;

use ggml_sys as sys;

use super::transfer;
use crate::buffer;
use crate::callback;
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::header::TensorPtr;

/// Equally long pieces at equal distances, in a tensor and in host memory. All fields are numbers of elements, and the
/// tensor must be contiguous.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::Pieces;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("grid", DType::F32, [3, 2])?;
/// let mut weights = builder.place(Device::cpu()?)?;
/// let column = Pieces { offset: 1, len: 1, count: 2, step: 3, data_step: 1 }; // the middle one
/// weights.set_2d("grid", column, &[5.0_f32, 6.0])?;
/// assert_eq!(weights.tensor("grid")?.read::<f32>()?, [0.0, 5.0, 0.0, 0.0, 6.0, 0.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// The offset of the first piece in the tensor.
    pub offset: usize,
    /// The length of each piece.
    pub len: usize,
    /// The number of pieces.
    pub count: usize,
    /// The stride between pieces in the tensor; at least `len`.
    pub step: usize,
    /// The stride between pieces in host memory, where the first has offset 0; at least `len`.
    pub data_step: usize,
}

/// Pieces as C takes them: offset, length, count, and the strides in the tensor and in host memory. All but the count
/// are in bytes.
type InBytes = (usize, usize, usize, usize, usize);

impl Pieces {
    /// The end of the last piece, in elements, if each begins `step` after the one before; `None` on overflow.
    fn end(self, step: usize) -> Option<usize> {
        if self.count == 0 {
            return Some(0);
        }
        (self.count - 1).checked_mul(step)?.checked_add(self.len)
    }

    /// Offset, length, count and strides in bytes, if the pieces are in bounds of the tensor and of `data` elements,
    /// and don't overlap. `None` if there is nothing to transfer, because C would loop over empty pieces one by one.
    pub(crate) fn checked<T: Element>(self, call: &'static str, t: TensorPtr, data: usize) -> Result<Option<InBytes>> {
        self.check::<T>(call, t, data)?;
        Ok((self.count > 0 && self.len > 0).then(|| self.bytes(size_of::<T>())))
    }

    /// The pieces in bytes. They must have been checked.
    fn bytes(self, unit: usize) -> InBytes {
        // C ignores the strides of a single piece. They are 0 here, because they may overflow.
        let step = |n: usize| if self.count < 2 { 0 } else { n * unit };
        (self.offset * unit, self.len * unit, self.count, step(self.step), step(self.data_step))
    }

    /// Checks that the pieces are in bounds of the tensor and of `data` elements, and don't overlap.
    fn check<T: Element>(self, call: &'static str, t: TensorPtr, data: usize) -> Result<()> {
        transfer::check_plain(call, t)?;
        if let Some(device) = buffer::type_of(t).and_then(buffer::BufferType::device) {
            meta::before_use(call, device, "a meta device transfers whole tensors only; use `set` or `read`")?;
        }
        transfer::check_type::<T>(call, t)?;
        if !t.is_contiguous() {
            return Err(transfer::not_contiguous(call, t));
        }
        let apart = self.count < 2 || (self.step >= self.len && self.data_step >= self.len);
        if !apart {
            return Err(Error::param(
                call,
                "pieces",
                format!("{self:?}"),
                "`step` and `data_step` must be at least `len`",
            ));
        }
        let size = t.elements();
        let end = self.end(self.step).and_then(|n| n.checked_add(self.offset));
        if end.is_none_or(|end| end > size) {
            let len = self.end(self.step).unwrap_or(usize::MAX);
            return Err(Error::Range { call, tensor: t.info(), offset: self.offset, len, size });
        }
        let expected = self.end(self.data_step).unwrap_or(usize::MAX);
        if expected > data {
            return Err(Error::Length { call, tensor: t.info(), expected, got: data, unit: "elements or more" });
        }
        Ok(())
    }
}

/// Writes pieces of `data` into a tensor that has memory.
#[doc(alias = "ggml_backend_tensor_set_2d")]
pub(crate) fn write<T: Element>(call: &'static str, t: TensorPtr, pieces: Pieces, data: &[T]) -> Result<()> {
    callback::check_reentry(call)?;
    let Some((offset, len, count, step, data_step)) = pieces.checked::<T>(call, t, data.len())? else {
        return Ok(());
    };
    let (raw, from) = (t.as_ptr(), data.as_ptr().cast::<c_void>());
    // SAFETY: `t` is live and has memory (the caller's check). All pieces are in bounds of the tensor and of `data`
    // (Pieces::checked), so their byte offsets don't overflow. The call is synchronous: C keeps nothing.
    unsafe { guarded!(call, sys::ggml_backend_tensor_set_2d(raw, from, offset, len, count, step, data_step)) }?;
    buffer::check_alive(t)
}

/// Reads pieces of a tensor that has memory into `out`.
#[doc(alias = "ggml_backend_tensor_get_2d")]
pub(crate) fn read<T: Element>(call: &'static str, t: TensorPtr, pieces: Pieces, out: &mut [T]) -> Result<()> {
    callback::check_reentry(call)?;
    let Some((offset, len, count, step, data_step)) = pieces.checked::<T>(call, t, out.len())? else {
        return Ok(());
    };
    let (raw, to) = (t.as_ptr(), out.as_mut_ptr().cast::<c_void>());
    // SAFETY: `t` is live and has memory (the caller's check). All pieces are in bounds of the tensor and of `out`
    // (Pieces::checked), so their byte offsets don't overflow. The call is synchronous: C keeps nothing.
    unsafe { guarded!(call, sys::ggml_backend_tensor_get_2d(raw, to, offset, len, count, step, data_step)) }?;
    buffer::check_alive(t)
}
