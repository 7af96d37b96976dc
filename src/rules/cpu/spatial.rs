//! Pooling, resizing, padding, windows of images, and hyper-connections.

use ggml_sys as sys;

use super::{PACKED, Verdict, need, rows_of, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        // The kernels find row `i` at `i * nb[1]`, or step by `nb[2]` to the end of the memory (H10, H11).
        sys::GGML_OP_POOL_1D | sys::GGML_OP_POOL_2D => sources(t).and_then(|[a]| {
            rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
            need(a.is_packed(), PACKED)
        }),
        sys::GGML_OP_ROLL => sources(t).and_then(|[a]| rows_of(a, &[DType::F32], "the CPU kernel takes f32 only")),
        // Their builders check all that the CPU kernels need.
        sys::GGML_OP_UPSCALE
        | sys::GGML_OP_PAD
        | sys::GGML_OP_PAD_REFLECT_1D
        | sys::GGML_OP_WIN_PART
        | sys::GGML_OP_WIN_UNPART
        // Hyper-connections.
        | sys::GGML_OP_DSV4_HC_COMB
        | sys::GGML_OP_DSV4_HC_PRE
        | sys::GGML_OP_DSV4_HC_POST => Ok(()),
        _ => return None,
    })
}
