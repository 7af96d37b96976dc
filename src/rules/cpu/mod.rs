//! Which operations ggml's CPU kernels accept. The CPU device claims nearly everything. A kernel then aborts on a
//! worker thread, where nothing can catch it, or reads out of bounds, so this table decides.

mod attention;
mod backward;
mod conv;
mod copy;
mod elementwise;
mod generate;
mod indexed;
mod mask;
mod matrix;
mod packed;
mod recurrent;
mod rows;
mod set;
mod sort;
mod spatial;

use super::{Refusal, Verdict, need};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(crate) use sort::{is_sort, readies};

/// One family's part of the table: its verdict, or `None` for operations of other families.
type Family = fn(TensorPtr) -> Option<Verdict>;

const FAMILIES: &[Family] = &[
    attention::accepts,
    backward::accepts,
    conv::accepts,
    copy::accepts,
    elementwise::accepts,
    generate::accepts,
    indexed::accepts,
    mask::accepts,
    matrix::accepts,
    recurrent::accepts,
    rows::accepts,
    set::accepts,
    sort::accepts,
    spatial::accepts,
];

/// Whether the CPU has a kernel for the operation `t`; else the reason.
pub(crate) fn accepts(t: TensorPtr) -> Verdict {
    if t.is_view_op() {
        return Ok(());
    }
    countable(t)?;
    if t.is_custom() {
        return Ok(()); // Builders of closures check all that a call needs (`ops/custom`).
    }
    FAMILIES.iter().find_map(|f| f(t)).unwrap_or(Err(Refusal("this crate knows no CPU kernel for the operation")))
}

/// The first `N` sources, or a refusal if one is missing.
fn sources<const N: usize>(t: TensorPtr) -> Verdict<[TensorPtr; N]> {
    let found = t.slots().first_chunk::<N>().copied().unwrap_or([None; N]);
    need(found.iter().all(Option::is_some), "the operation lacks an operand")?;
    Ok(found.map(|src| src.unwrap_or(t)))
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const ROWS: &str = "the CPU kernel needs contiguous rows; use `cont`";
const EVEN: &str = "the CPU kernel needs evenly spaced rows; use `cont`";
const PACKED: &str = "the CPU kernel needs an operand with the strides of a new tensor; use `cont`";

fn rows_of(t: TensorPtr, types: &[DType], otherwise: &'static str) -> Verdict {
    need(types.contains(&t.dtype()), otherwise)?;
    need(t.has_dense_rows(), ROWS)
}

/// The exclusive upper bound of a row's elements, and of rows. Kernels count both in 32 bits, and add the width of a
/// vector or the number of threads (H38).
const MOST: i64 = (1 << 31) - (1 << 16);

fn countable(t: TensorPtr) -> Verdict {
    let fits = |t: TensorPtr| {
        let [n0, n1, n2, n3] = t.ne();
        let rows = n1.checked_mul(n2).and_then(|n| n.checked_mul(n3));
        [Some(n0), rows].iter().all(|n| n.is_some_and(|n| n < MOST))
    };
    need(t.sources().chain([t]).all(fits), "the CPU kernels take less than 2^31 - 2^16 rows, or elements of a row")
}

/// Whether a kernel can count all elements (blocks) of a tensor in 32 bits, as one row.
fn countable_whole(t: TensorPtr) -> bool {
    let [n0, n1, n2, n3] = t.ne();
    let count = [n1, n2, n3].into_iter().try_fold(n0 / t.dtype().block_size(), i64::checked_mul);
    count.is_some_and(|n| n < MOST)
}
