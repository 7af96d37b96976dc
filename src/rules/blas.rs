//! Which operations ggml's BLAS backend computes correctly. The backend claims more. With other operations it fails an
//! assertion during the computation, which ends the process, cuts dimensions to 32 bits, or takes a transposed operand
//! for a contiguous one.

use super::table::row_of;
use super::{Refusal, Verdict, need};
use crate::header::TensorPtr;

/// The two operations that ggml's BLAS backend has code for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blas {
    Product,
    OuterProduct,
}

/// Whether the BLAS backend computes the operation correctly if it claims it; else the reason why not. The backend
/// never claims operations that it has no code for.
pub(super) fn accepts(t: TensorPtr) -> Verdict {
    let product = match row_of(t)?.blas {
        Some(Blas::Product) => true,
        Some(Blas::OuterProduct) => false,
        None => return Ok(()),
    };
    let [Some(a), Some(b), ..] = t.slots() else { return Err(Refusal("the operation lacks an operand")) };
    let counts = |t: TensorPtr| t.ne().into_iter().take(2).all(|n| i32::try_from(n).is_ok());
    need(counts(a) && counts(b), "BLAS takes less than 2^31 rows, and elements of a row")?;
    need(a.has_dense_rows() && (!product || b.has_dense_rows()), "BLAS needs contiguous rows; use `cont`")?;
    let converted = a.ne().into_iter().try_fold(4_i64, i64::checked_mul);
    let fits = converted.is_some_and(|bytes| isize::try_from(bytes).is_ok());
    need(fits, "the first operand, converted to f32, is too large for the address space")?;
    let columns = product || !b.is_transposed() || b.layout().has_contiguous_columns();
    need(columns, "BLAS needs a transposed second operand to have no gaps; use `cont`")
}
