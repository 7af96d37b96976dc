//! Operands whose values are indices. No kernel checks them all, and none does so without ending the process. So they
//! are either set by the host, and checked then, or made by an operation whose results are known to be small enough;
//! indices that come from elsewhere are refused, or promised by the caller of an `unsafe` builder.

use ggml_sys as sys;

use super::check::Call;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::ptr::{Owner, TensorPtr};

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
    /// when it is set (see [`distinct`]), and no row that `argsort` or `top_k` makes has the same number twice.
    pub(super) fn check_distinct(self, call: Call<'_, '_>, t: Tensor<'_>) -> Result<()> {
        let differ = matches!(self, Self::Promised) || is_input(t.ptr()) || rows_of_root(t.ptr());
        call.shape(
            differ,
            "numbers of rows to write, or of rearranged experts, must be an input, or parts of rows that `argsort` or \
             `top_k` made",
        )
    }
}

/// Whether each row of `t` lies inside one row of the tensor it looks at, which has no gaps.
fn rows_of_root(t: TensorPtr) -> bool {
    let (root, [n, upper @ ..], [nb, strides @ ..]) = (t.root(), t.ne(), t.nb());
    let ([width, ..], [unit, row, ..]) = (root.ne(), root.nb());
    let offset = if t == root { 0 } else { t.view_offs() };
    let start = i64::try_from(offset % row / unit).unwrap_or(i64::MAX);
    let whole = upper.into_iter().zip(strides).all(|(n, nb)| n == 1 || nb % row == 0);
    whole && (n == 1 || nb == unit) && start.checked_add(n).is_some_and(|end| end <= width)
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

/// Which source of an operation holds indices.
pub(crate) fn slot(node: TensorPtr) -> Option<usize> {
    picks(node).map(|(slot, _)| slot)
}

/// Which source of an operation holds indices, and what they must be below.
fn picks(node: TensorPtr) -> Option<(usize, i64)> {
    let ne_of = |slot| node.source(slot).map(TensorPtr::ne);
    match node.op() {
        sys::GGML_OP_GET_ROWS => {
            let [_, n, ..] = ne_of(0)?;
            Some((1, n))
        }
        sys::GGML_OP_SSM_SCAN => {
            let [.., n] = ne_of(0)?;
            Some((6, n))
        }
        sys::GGML_OP_GET_ROWS_BACK | sys::GGML_OP_SET_ROWS => {
            let [_, n, ..] = node.ne();
            Some((1, n))
        }
        sys::GGML_OP_MUL_MAT_ID => {
            let [_, _, n, _] = ne_of(0)?;
            Some((2, n))
        }
        sys::GGML_OP_ADD_ID => {
            let [_, n, ..] = ne_of(1)?;
            Some((2, n))
        }
        _ => None,
    }
}

/// The operand, an input or a view of one, each row of which must hold different values: rows that are written are
/// spread over threads, and the kernel for experts that were rearranged has room for each token once (H27).
pub(crate) fn distinct(node: TensorPtr) -> Option<TensorPtr> {
    if !matches!(node.op(), sys::GGML_OP_SET_ROWS | sys::GGML_OP_MUL_MAT_ID) {
        return None;
    }
    let [first, second, third, ..] = node.slots();
    let named = if node.op() == sys::GGML_OP_SET_ROWS {
        second
    } else {
        third.filter(|_| first.is_some_and(|t| t.owner() == Owner::Packed))
    };
    named.filter(|t| is_input(*t))
}

/// Where, among the values of the tensor that `t` looks at, a row of `t` repeats one, and that value.
pub(crate) fn repeated(t: TensorPtr, values: &[i64]) -> Option<(usize, i64)> {
    let ([n0, n1, n2, n3], unit) = (t.ne(), t.dtype().type_size());
    let [s0, s1, s2, s3] = t.nb().map(|nb| nb / unit);
    let offset = if t == t.root() { 0 } else { t.view_offs() / unit };
    let to = |n: i64| 0..usize::try_from(n).unwrap_or(0);
    let starts = to(n3).flat_map(|i3| to(n2).flat_map(move |i2| to(n1).map(move |i1| i1 * s1 + i2 * s2 + i3 * s3)));
    let mut row = Vec::new();
    starts.map(|start| offset + start).find_map(|start| {
        row.clear();
        row.extend(to(n0).map(|i| start + i * s0).filter_map(|i| Some((*values.get(i)?, i))));
        let ascending = row.is_sorted_by(|(a, _), (b, _)| a < b);
        if !ascending {
            row.sort_unstable();
        }
        row.iter().zip(row.iter().skip(1)).find(|((a, _), (b, _))| a == b).map(|(_, (value, i))| (*i, *value))
    })
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
