//! Which weights a repacking buffer type can hold (H27); ggml accepts any weights, and then calls a NULL function.

use crate::buffer::extra::Packing;
use crate::buffer::{Buffer, BufferType};
use crate::context::Context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// ggml's repacking and matrix multiplication count blocks in 32 bits.
const MAX_BLOCKS: i64 = (1 << 31) - (1 << 16);

/// ggml's AMX kernels count bytes in 32 bits.
const MAX_AMX_BYTES: usize = 1 << 31;

impl BufferType {
    /// Whether this buffer type can hold weights of this type and shape. Only repacking types
    /// ([`Device::extra_buffer_types`]) have limits; for others the answer is `true`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if a dimension is below 1, the first is not a whole number of blocks, or the size overflows;
    /// else as [`Device::extra_buffer_types`].
    pub fn holds(self, dtype: DType, shape: impl Into<Shape>) -> Result<bool> {
        let ctx = Context::new();
        let t = ctx.leaf("BufferType::holds", "", dtype, shape.into())?;
        Ok(!self.is_extra()? || self.packs(&ctx, t)?)
    }

    /// Whether the device can multiply by the tensor `t` in this repacking buffer type. `t` has no memory yet.
    fn packs(self, ctx: &Context, t: Tensor<'_>) -> Result<bool> {
        let (Some(packing), Some(device)) = (Packing::of(self), self.device()) else { return Ok(false) };
        let [k, m, n, last] = t.ne();
        let blocks = (k / t.dtype().block_size()).checked_mul(m).and_then(|b| b.checked_mul(n));
        if last != 1 || blocks.is_none_or(|b| b >= MAX_BLOCKS) {
            return Ok(false);
        }
        // For AMX, ggml computes the packed size of one matrix only, even if there are several.
        if packing == Packing::Amx && (n != 1 || self.alloc_size_of(t.ptr())? >= MAX_AMX_BYTES) {
            return Ok(false);
        }
        supports(self, device, ctx, [k, m, n], t.dtype())
    }
}

/// Asks the device whether it can multiply by weights in this buffer type. The device checks the type of the weights'
/// buffer, so they get an empty one.
fn supports(buft: BufferType, device: Device, ctx: &Context, [k, m, n]: [i64; 3], dtype: DType) -> Result<bool> {
    let w = ctx.leaf("BufferType::holds", "", dtype, [k, m, n].into())?;
    let b = ctx.input("", DType::F32, [k, 1])?;
    let op = if n == 1 { ctx.mul_mat(w, b) } else { ctx.mul_mat_id(w, b, ctx.input("", DType::I32, [1, 1])?) }?;
    let buffer = Buffer::empty(buft)?;
    w.ptr().set_buffer(buffer.as_ptr());
    let answer = device.claims(op.ptr());
    w.ptr().release();
    answer
}

/// The owner that tensors in this buffer type have, or an error if the buffer type can't hold them.
pub(super) fn owner(buft: BufferType, tensors: &[TensorPtr], owner: Owner) -> Result<Owner> {
    if !buft.is_extra()? {
        return Ok(owner);
    }
    let refuse = |t: TensorPtr, reason: &'static str| {
        Error::unsupported("WeightsBuilder::place", [t.info()], buft.name(), reason)
    };
    for &t in tensors {
        if owner != Owner::Weights {
            return Err(refuse(t, "repacking buffer types hold weights only; use the device's buffer type"));
        }
        if !buft.holds(t.dtype(), t.ne())? {
            return Err(refuse(t, "this repacking buffer type can't hold its type or shape; ask `BufferType::holds`"));
        }
    }
    Ok(Owner::Packed)
}
