//! Which weights can lie in memory that rearranges them (H27): ggml takes any, and later jumps to NULL.

use crate::buffer::extra::Packing;
use crate::buffer::{Buffer, BufferType};
use crate::context::Context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// ggml counts blocks in 32 bits when it rearranges them, and when it multiplies by them.
const MOST_BLOCKS: i64 = (1 << 31) - (1 << 16);

/// The AMX kernels count bytes so.
const MOST_AMX_BYTES: usize = 1 << 31;

impl BufferType {
    /// Whether weights of this type and shape can lie in such memory. That is a question only for memory that rearranges
    /// them ([`Device::extra_buffer_types`]): all other takes everything.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] where a dimension is below 1, is no whole number of blocks, or the size is too large; else as
    /// [`Device::extra_buffer_types`].
    pub fn holds(self, dtype: DType, shape: impl Into<Shape>) -> Result<bool> {
        let ctx = Context::new();
        let t = ctx.leaf("BufferType::holds", "", dtype, shape.into())?;
        Ok(!self.is_extra()? || self.packs(&ctx, t)?)
    }

    /// Whether a device multiplies by such a tensor, still without memory, in this memory, which is an extra type.
    fn packs(self, ctx: &Context, t: Tensor<'_>) -> Result<bool> {
        let (Some(packing), Some(device)) = (Packing::of(self), self.device()) else { return Ok(false) };
        let [k, m, n, last] = t.ne();
        let blocks = (k / t.dtype().block_size()).checked_mul(m).and_then(|b| b.checked_mul(n));
        if last != 1 || blocks.is_none_or(|b| b >= MOST_BLOCKS) {
            return Ok(false);
        }
        // It takes the size of the first matrix for that of all.
        if packing == Packing::Amx && (n != 1 || self.alloc_size_of(t.ptr())? >= MOST_AMX_BYTES) {
            return Ok(false);
        }
        supports(self, device, ctx, [k, m, n], t.dtype())
    }
}

/// Asks the device whether it multiplies by weights in such memory. It looks at the type of the buffer that they have,
/// so they get one without bytes.
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

/// Whom tensors belong to that are to lie in memory of this type, if they can.
pub(super) fn owner(buft: BufferType, tensors: &[TensorPtr], owner: Owner) -> Result<Owner> {
    if !buft.is_extra()? {
        return Ok(owner);
    }
    let refuse = |t: TensorPtr, reason: &'static str| {
        Error::unsupported("WeightsBuilder::place", [t.info()], buft.name(), reason)
    };
    for &t in tensors {
        if owner != Owner::Weights {
            return Err(refuse(t, "memory that rearranges tensors is for weights only"));
        }
        if !buft.holds(t.dtype(), t.ne())? {
            return Err(refuse(t, "memory that rearranges tensors takes some types and shapes only; see `holds`"));
        }
    }
    Ok(Owner::Packed)
}
