//! Operands whose values are indices. No kernel checks them all, and none does so without ending the process, so they are
//! checked when the host sets them; indices that come from elsewhere are refused.

use ggml_sys as sys;

use crate::tensor::Tensor;
use crate::tensor::ptr::TensorPtr;

/// What [`is_checked`] asks for, in words.
pub(super) const EXPECTED: &str =
    "indices must be an input, or a view of one, so that they can be checked when it is set";

/// Whether the values of an index operand are checked when they are set.
pub(super) fn is_checked(t: Tensor<'_>) -> bool {
    let root = t.ptr().root();
    let views = matches!(
        t.ptr().op(),
        sys::GGML_OP_NONE | sys::GGML_OP_VIEW | sys::GGML_OP_RESHAPE | sys::GGML_OP_PERMUTE | sys::GGML_OP_TRANSPOSE
    );
    views && root.op() == sys::GGML_OP_NONE && root.flags() & sys::GGML_TENSOR_FLAG_INPUT.cast_signed() != 0
}

/// The input that holds the indices of an operation, and the number that all of them must be below.
pub(crate) fn bound(node: TensorPtr) -> Option<(TensorPtr, i64)> {
    let mut srcs = node.sources();
    match (node.op(), srcs.next(), srcs.next()) {
        (sys::GGML_OP_GET_ROWS, Some(a), Some(rows)) => {
            let [_, n, ..] = a.ne();
            Some((rows.root(), n))
        }
        _ => None,
    }
}
