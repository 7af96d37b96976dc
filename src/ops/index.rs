//! The checks of operands that hold indices.

use super::check::Call;
use crate::error::Result;
use crate::rules::indices;
use crate::tensor::Tensor;

/// Checks that all values of an index operand are known to lie in `0..below`.
///
/// A builder that calls this must also list its operation in `rules/indices.rs`.
pub(super) fn check(call: Call<'_, '_>, t: Tensor<'_>, below: i64) -> Result<()> {
    let checked = indices::is_input(t.ptr()) || indices::made_below(t.ptr()).is_some_and(|n| n <= below);
    call.shape(
        checked,
        "indices must be an input or a view of one, which is checked when it is set, or come from `argsort` or `top_k` \
         of rows that are not longer than the dimension that they index",
    )
}

/// Who guarantees that an operand's indices are in range.
#[derive(Clone, Copy)]
pub(super) enum Indices {
    /// This crate checks that the indices are in range.
    Checked,
    /// The caller of an `unsafe` builder guarantees that the indices are in range.
    Promised,
}

impl Indices {
    /// Checks the indices by [`check`], unless the caller guarantees that they are in range.
    pub(super) fn check(self, call: Call<'_, '_>, t: Tensor<'_>, below: i64) -> Result<()> {
        match self {
            Self::Checked => check(call, t, below),
            Self::Promised => Ok(()),
        }
    }

    /// Checks that the values in each row of `t`, which [`check`] accepted, will be distinct: those of an input are
    /// checked when it is set (`Distinct` in `rules/indices.rs`), and `argsort` and `top_k` repeat no index in a row.
    pub(super) fn check_distinct(self, call: Call<'_, '_>, t: Tensor<'_>) -> Result<()> {
        let differ = matches!(self, Self::Promised) || indices::is_input(t.ptr()) || indices::rows_of_root(t.ptr());
        call.shape(
            differ,
            "indices of rows to write, or of repacked experts, must be an input, or parts of rows that `argsort` or \
             `top_k` made",
        )
    }
}
