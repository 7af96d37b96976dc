//! Windows that move over images.

use ggml_sys as sys;

use super::{PACKED, ROWS, Verdict, dense, is_packed, need, rows_of, sources};
use crate::dtype::DType;
use crate::tensor::ptr::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_IM2COL => sources(t).and_then(|[_, image]| im2col(image, t)),
        sys::GGML_OP_POOL_2D => sources(t).and_then(|[a]| {
            rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
            // It walks by the third stride until the end of the memory (H11).
            need(is_packed(a), PACKED)
        }),
        _ => return None,
    })
}

fn im2col(image: TensorPtr, t: TensorPtr) -> Verdict {
    let types = matches!((image.dtype(), t.dtype()), (DType::F32, DType::F32 | DType::F16) | (DType::F16, DType::F16));
    need(types, "the CPU kernel takes an image of f32, or f16 for a result of f16")?;
    need(dense(image), ROWS)
}
