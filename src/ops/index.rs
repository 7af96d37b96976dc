//! Operands whose values are indices. No kernel checks them all, and none does so without ending the process. So they
//! are either set by the host, and checked then, or made by an operation whose results are known to be small enough;
//! indices that come from elsewhere are refused.

use ggml_sys as sys;

use super::check::Call;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::ptr::TensorPtr;

/// Checks an index operand of a builder, all of whose values must lie in 0 to below `below`.
///
/// Whoever builds an operation with such an operand also lists it in [`picks`].
pub(super) fn check(call: Call<'_, '_>, t: Tensor<'_>, below: i64) -> Result<()> {
    let checked = is_input(t.ptr()) || made_below(t.ptr()).is_some_and(|n| n <= below);
    call.shape(
        checked,
        "indices must be an input or a view of one, so that they can be checked when it is set, or come from `argsort` \
         or `top_k` of rows that are not longer than what they pick from",
    )
}

/// Whether an operation makes indices that [`check`] trusts, so that nothing may write to its result.
pub(super) fn is_trusted(t: TensorPtr) -> bool {
    matches!(t.op(), sys::GGML_OP_ARGSORT | sys::GGML_OP_TOP_K)
}

/// The inputs that hold the indices of an operation, each with the number that all of them must be below.
pub(crate) fn bounds(node: TensorPtr) -> impl Iterator<Item = (TensorPtr, i64)> {
    picks(node)
        .into_iter()
        .filter_map(move |(slot, below)| Some((node.slots().into_iter().nth(slot)??, below)))
        .filter(|(t, _)| is_input(*t))
        .map(|(t, below)| (t.root(), below))
}

/// Which source of an operation holds indices, and what they must be below.
fn picks(node: TensorPtr) -> Option<(usize, i64)> {
    let mut srcs = node.sources();
    match node.op() {
        sys::GGML_OP_GET_ROWS => {
            let [_, n, ..] = srcs.next()?.ne();
            Some((1, n))
        }
        sys::GGML_OP_SSM_SCAN => {
            let [.., n] = srcs.next()?.ne();
            Some((6, n))
        }
        _ => None,
    }
}

fn is_input(t: TensorPtr) -> bool {
    let root = t.root();
    looks(t) && root.op() == sys::GGML_OP_NONE && root.flags() & sys::GGML_TENSOR_FLAG_INPUT.cast_signed() != 0
}

/// For a result, or a view of one, whose values are indices by nature: what they are below.
fn made_below(t: TensorPtr) -> Option<i64> {
    let root = t.root();
    if !is_trusted(root) || !(t == root || looks(t)) {
        return None;
    }
    let [n, ..] = root.sources().next()?.ne();
    Some(n)
}

/// Whether `t` is a leaf, or looks at another tensor's memory without writing to it.
fn looks(t: TensorPtr) -> bool {
    matches!(
        t.op(),
        sys::GGML_OP_NONE | sys::GGML_OP_VIEW | sys::GGML_OP_RESHAPE | sys::GGML_OP_PERMUTE | sys::GGML_OP_TRANSPOSE
    )
}
