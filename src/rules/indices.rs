//! Operands that hold indices. No kernel checks all of them, and a failed check ends the process. So indices are an
//! input, which is checked when the host sets it, or the result of an operation whose values are in range. All others
//! are refused, unless the caller of an `unsafe` builder guarantees the range.

use ggml_sys as sys;

use crate::entries::{Entries, Kind};
use crate::error::Result;
use crate::header::{Owner, TensorPtr};

/// Whether each row of `t` is contiguous and lies inside one row of its root.
pub(crate) fn rows_of_root(t: TensorPtr) -> bool {
    let (root, [n, upper @ ..], [nb, strides @ ..]) = (t.root(), t.ne(), t.nb());
    let ([width, ..], [unit, row, ..]) = (root.ne(), root.nb());
    let offset = if t == root { 0 } else { t.view_offs() };
    let start = i64::try_from(offset % row / unit).unwrap_or(i64::MAX);
    let whole = upper.into_iter().zip(strides).all(|(n, nb)| n == 1 || nb % row == 0);
    whole && (n == 1 || nb == unit) && start.checked_add(n).is_some_and(|end| end <= width)
}

/// Whether builders trust the operation's results as indices. Nothing may write to such a result.
pub(crate) fn is_trusted(t: TensorPtr) -> bool {
    matches!(t.op(), sys::GGML_OP_ARGSORT | sys::GGML_OP_TOP_K)
}

/// Records what a graph's operations demand of inputs that hold indices.
pub(crate) fn record(entries: &mut Entries) -> Result<()> {
    for i in 0..entries.len() {
        let Some(node) = entries.get(i).filter(|e| e.kind == Kind::Node).map(|e| e.ptr) else { continue };
        bounds(node).for_each(|(input, below)| entries.bound(input, below));
        if let Some(rows) = distinct(node) {
            entries.demand_distinct(rows)?;
        }
    }
    Ok(())
}

/// Whether another device may start from this result. Not if that breaks what safety checks rely on: sorts get no NaN
/// from the clamp before them, and indices that sorts make are in range and distinct.
pub(crate) fn may_lend(t: TensorPtr, numbers: &[f64]) -> bool {
    match t.op() {
        sys::GGML_OP_ARGSORT | sys::GGML_OP_TOP_K => false,
        sys::GGML_OP_CLAMP => !numbers.iter().any(|x| x.is_nan()),
        _ => true,
    }
}

/// The inputs that hold the operation's indices, each with their exclusive upper bound.
pub(crate) fn bounds(node: TensorPtr) -> impl Iterator<Item = (TensorPtr, i64)> {
    picks(node)
        .into_iter()
        .filter_map(move |(slot, below)| Some((node.slots().into_iter().nth(slot)??, below)))
        .filter(|(t, _)| is_input(*t))
        .map(|(t, below)| (t.root(), below))
}

/// The slot of the source that holds indices.
pub(crate) fn slot(node: TensorPtr) -> Option<usize> {
    picks(node).map(|(slot, _)| slot)
}

/// The slot of the source that holds the experts of each token, if the operation is a product of experts.
#[cfg(ggml_0_28)]
pub(crate) fn of_experts(node: TensorPtr) -> Option<usize> {
    (node.op() == sys::GGML_OP_MUL_MAT_ID).then(|| slot(node)).flatten()
}

/// The slot of the source that holds indices, and their exclusive upper bound.
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

/// The operand, an input or a view of one, whose rows must each hold distinct indices: threads write rows in parallel,
/// and the kernel for repacked experts has room for each token once per expert (H108).
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

/// The first repeated value in a row of `t`: its position among `values`, those of the root of `t`, and the value.
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

pub(crate) fn is_input(t: TensorPtr) -> bool {
    let root = t.root();
    t.is_view_op() && root.op() == sys::GGML_OP_NONE && root.flags() & sys::GGML_TENSOR_FLAG_INPUT.cast_signed() != 0
}

/// The exclusive upper bound of trusted indices: of `argsort`, `top_k`, or a view of their results.
pub(crate) fn made_below(t: TensorPtr) -> Option<i64> {
    let root = t.root();
    if !is_trusted(root) || !(t == root || t.is_view_op()) {
        return None;
    }
    let [n, ..] = root.sources().next()?.ne();
    Some(n)
}
