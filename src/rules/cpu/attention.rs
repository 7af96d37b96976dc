//! Attention, its indexer, and relative positions.

use ggml_sys as sys;

use super::{ROWS, Verdict, copy, matrix, need, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_FLASH_ATTN_EXT => sources(t).and_then(|srcs| flash_attn(srcs, t)),
        sys::GGML_OP_LIGHTNING_INDEXER => sources(t).and_then(|srcs: [_; 4]| {
            let [_, k, ..] = srcs;
            need(to_float(k.dtype()), "the CPU can't convert keys of this type to f32")?;
            need(srcs.into_iter().all(TensorPtr::has_dense_rows), ROWS)
        }),
        sys::GGML_OP_GET_REL_POS => {
            sources(t).and_then(|[a]| need(a.is_contiguous(), "the CPU kernel needs a contiguous operand; use `cont`"))
        }
        sys::GGML_OP_ADD_REL_POS => {
            sources(t).and_then(|[a]| need(a.dtype() == DType::F32, "the CPU kernel takes f32 only"))
        }
        _ => return None,
    })
}

fn flash_attn([q, k, v]: [TensorPtr; 3], t: TensorPtr) -> Verdict {
    matrix::has_dot_product(k)?;
    need(to_float(k.dtype()), "the CPU can't compute attention with keys of this type")?;
    need(to_float(v.dtype()), "the CPU can't convert values of this type to f32")?;
    need([q, k, v].into_iter().all(TensorPtr::has_dense_rows), ROWS)?;
    let [_, _, _, precision, ..] = t.op_params();
    let known = [sys::GGML_PREC_UNDEFINED, sys::GGML_PREC_F32].map(sys::ggml_prec::cast_signed);
    need(known.contains(&precision), "the CPU kernel accumulates in f32 only; leave `acc` out")
}

fn to_float(t: DType) -> bool {
    t.is_float() || copy::has_float_rows(t)
}
