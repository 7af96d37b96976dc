//! What ggml's BLAS backend can bear of what it claims to support. It asserts while it computes, where that ends the
//! process, hands dimensions on in 32 bits, and takes a transposed operand for one without gaps.

use ggml_sys as sys;

use super::{Refusal, Verdict, need};
use crate::header::TensorPtr;

/// Whether the backend has code for operations of this kind.
pub(super) fn computes(t: TensorPtr) -> bool {
    matches!(t.op(), sys::GGML_OP_MUL_MAT | sys::GGML_OP_OUT_PROD)
}

/// Whether the backend computes such an operation as it should, if it claims to, or what is wrong.
pub(super) fn accepts(t: TensorPtr) -> Verdict {
    let product = t.op() == sys::GGML_OP_MUL_MAT;
    let [Some(a), Some(b), ..] = t.slots() else { return Err(Refusal("the operation lacks an operand")) };
    let counts = |t: TensorPtr| t.ne().into_iter().take(2).all(|n| i32::try_from(n).is_ok());
    need(counts(a) && counts(b), "BLAS counts rows and their elements in 32 bits")?;
    need(
        a.has_dense_rows() && (!product || b.has_dense_rows()),
        "BLAS needs the elements of each row side by side; use `cont`",
    )?;
    let converted = a.ne().into_iter().try_fold(4_i64, i64::checked_mul);
    let fits = converted.is_some_and(|bytes| isize::try_from(bytes).is_ok());
    need(fits, "the first operand would be too large in f32")?;
    let columns = product || !b.is_transposed() || b.layout().has_contiguous_columns();
    need(columns, "BLAS takes a transposed second operand without gaps only; use `cont`")
}
