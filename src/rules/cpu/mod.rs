//! What ggml's CPU kernels accept. The CPU device claims to support nearly everything and aborts inside the kernel, on a
//! worker thread, where nothing can catch it, or reads beyond a tensor; so this table decides.

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

/// One family's part of the table: its verdict on an operation of its own, `None` for any other.
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

/// Whether the CPU has a kernel for the operation `t`, or what is missing.
pub(crate) fn accepts(t: TensorPtr) -> Verdict {
    if t.is_view_op() {
        return Ok(());
    }
    countable(t)?;
    if t.is_custom() {
        return Ok(()); // Builders of closures check all that calling them takes.
    }
    FAMILIES.iter().find_map(|f| f(t)).unwrap_or(Err(Refusal("this crate knows no CPU kernel for the operation")))
}

/// The first `N` sources, or the verdict on an operation that lacks one.
fn sources<const N: usize>(t: TensorPtr) -> Verdict<[TensorPtr; N]> {
    let found = t.slots().first_chunk::<N>().copied().unwrap_or([None; N]);
    need(found.iter().all(Option::is_some), "the operation lacks an operand")?;
    Ok(found.map(|src| src.unwrap_or(t)))
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const ROWS: &str = "the CPU kernel needs the elements of each row side by side; use `cont`";
const EVEN: &str = "the CPU kernel needs all rows equally far apart; use `cont`";
const PACKED: &str = "the CPU kernel needs an operand with the strides of a new tensor; use `cont`";

fn rows_of(t: TensorPtr, types: &[DType], otherwise: &'static str) -> Verdict {
    need(types.contains(&t.dtype()), otherwise)?;
    need(t.has_dense_rows(), ROWS)
}

/// Kernels count the elements of a row and the rows in 32 bits, and add to that the width of a vector or the number of
/// threads.
const MOST: i64 = (1 << 31) - (1 << 16);

fn countable(t: TensorPtr) -> Verdict {
    let fits = |t: TensorPtr| {
        let [n0, n1, n2, n3] = t.ne();
        let rows = n1.checked_mul(n2).and_then(|n| n.checked_mul(n3));
        [Some(n0), rows].iter().all(|n| n.is_some_and(|n| n < MOST))
    };
    need(t.sources().chain([t]).all(fits), "the CPU kernels take less than 2^31 - 2^16 rows, or elements of a row")
}

/// Whether a kernel can count all elements (blocks) of a tensor as if they were one row.
fn countable_whole(t: TensorPtr) -> bool {
    let [n0, n1, n2, n3] = t.ne();
    let count = [n1, n2, n3].into_iter().try_fold(n0 / t.dtype().block_size(), i64::checked_mul);
    count.is_some_and(|n| n < MOST)
}
