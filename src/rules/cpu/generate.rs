//! Constants, sequences and embeddings of time steps.

use ggml_sys as sys;

use super::{ROWS, Verdict, need, rows_of, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_FILL => sources(t).and_then(|[a]| {
            need(matches!(a.dtype(), DType::F32 | DType::F16), "the CPU kernel takes f32 or f16")?;
            // The kernel fills the result row by row.
            need(t.has_dense_rows(), ROWS)
        }),
        // The builder has counted the elements as the kernel does.
        sys::GGML_OP_ARANGE => Ok(()),
        sys::GGML_OP_TIMESTEP_EMBEDDING => {
            sources(t).and_then(|[a]| rows_of(a, &[DType::F32], "the CPU kernel takes f32 only"))
        }
        _ => return None,
    })
}
