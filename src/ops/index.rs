//! How builders ask for operands whose values are indices.

use super::check::Call;
use crate::error::Result;
use crate::rules::indices;
use crate::tensor::Tensor;

/// Checks an index operand of a builder, all of whose values must lie in 0 to below `below`.
///
/// Whoever builds an operation with such an operand also lists it in `rules/indices.rs`.
pub(super) fn check(call: Call<'_, '_>, t: Tensor<'_>, below: i64) -> Result<()> {
    let checked = indices::is_input(t.ptr()) || indices::made_below(t.ptr()).is_some_and(|n| n <= below);
    call.shape(
        checked,
        "indices must be an input or a view of one, so that they can be checked when it is set, or come from `argsort` \
         or `top_k` of rows that are not longer than what they pick from",
    )
}

/// Who says that an operand's indices are in range.
#[derive(Clone, Copy)]
pub(super) enum Indices {
    /// This crate.
    Checked,
    /// The caller of an `unsafe` builder.
    Promised,
}

impl Indices {
    /// [`check`], unless the caller has promised as much.
    pub(super) fn check(self, call: Call<'_, '_>, t: Tensor<'_>, below: i64) -> Result<()> {
        match self {
            Self::Checked => check(call, t, below),
            Self::Promised => Ok(()),
        }
    }

    /// Checks that the values in each row of `t`, which [`check`] accepted, will differ: those of an input are looked at
    /// when it is set (see [`indices::distinct`]), and no row that `argsort` or `top_k` makes has the same number twice.
    pub(super) fn check_distinct(self, call: Call<'_, '_>, t: Tensor<'_>) -> Result<()> {
        let differ = matches!(self, Self::Promised) || indices::is_input(t.ptr()) || indices::rows_of_root(t.ptr());
        call.shape(
            differ,
            "numbers of rows to write, or of rearranged experts, must be an input, or parts of rows that `argsort` or \
             `top_k` made",
        )
    }
}
