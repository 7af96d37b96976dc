//! Operands that hold indices. No kernel checks all of them, and a failed check ends the process. So indices must be an
//! input, which is checked when the host sets it, or the result of an operation whose values are in range. All others
//! are refused, unless the caller of an `unsafe` builder guarantees the range.

use std::sync::atomic::{AtomicBool, Ordering};

use ggml_sys as sys;

use crate::entries::{Entries, Kind};
use crate::error::Result;
use crate::header::TensorPtr;
#[cfg(ggml_0_28)]
use crate::op::Operation;
use crate::rules::table::row_of;

/// Whether an operation uses or makes indices, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    No,
    /// The operand in `slot` holds indices.
    Reads {
        slot: usize,
        below: Bound,
        distinct: Distinct,
    },
    /// The operation's result holds indices that are in range, and distinct in each row.
    Makes,
    /// The operation may be the clamp that removes NaN before an operation that makes indices.
    RemovesNan,
}

/// The exclusive upper bound of indices, given as a dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Source { slot: usize, axis: usize },
    Result { axis: usize },
}

/// Whether the indices in a row must be distinct. They must where threads write rows in parallel, and for
/// experts: kernels of repacked ones (H108) and CUDA's have room for each token only once per expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distinct {
    No,
    Always,
}

/// Which of ggml's operations, by number, are known to have no role. Each graph asks for the roles of all its nodes, and to
/// decode a node takes longer than this.
static WITHOUT: [AtomicBool; sys::GGML_OP_COUNT as usize] =
    [const { AtomicBool::new(false) }; sys::GGML_OP_COUNT as usize];

/// The role of a header's operation. It doesn't depend on parameters.
fn role(t: TensorPtr) -> Role {
    let without = WITHOUT.get(t.op() as usize);
    if without.is_some_and(|without| without.load(Ordering::Relaxed)) {
        debug_assert!(row_of(t).map_or(true, |row| row.role == Role::No), "{} has a role", t.op_name());
        return Role::No;
    }
    let Ok(row) = row_of(t) else { return Role::No };
    if let (Some(without), Role::No) = (without, row.role) {
        without.store(true, Ordering::Relaxed);
    }
    row.role
}

/// Whether each row of `t` is contiguous and lies inside one row of the root of `t`.
pub(crate) fn rows_of_root(t: TensorPtr) -> bool {
    let (root, [n, upper @ ..], [nb, strides @ ..]) = (t.root(), t.ne(), t.nb());
    let ([width, ..], [unit, row, ..]) = (root.ne(), root.nb());
    let offset = if t == root { 0 } else { t.view_offs() };
    let start = i64::try_from(offset % row / unit).unwrap_or(i64::MAX);
    let whole = upper.into_iter().zip(strides).all(|(n, nb)| n == 1 || nb % row == 0);
    whole && (n == 1 || nb == unit) && start.checked_add(n).is_some_and(|end| end <= width)
}

/// Whether `t` is the result of a sort, which builders trust as indices. Nothing may write to such a result, and the
/// sorts' CPU kernels must not get NaN.
pub(crate) fn is_trusted(t: TensorPtr) -> bool {
    role(t) == Role::Makes
}

/// Records what a graph's operations demand of inputs that hold indices.
pub(crate) fn record(entries: &mut Entries) -> Result<()> {
    for i in 0..entries.len() {
        let Some(node) = entries.get(i).filter(|e| e.kind == Kind::Node).map(|e| e.ptr) else { continue };
        let role = role(node);
        if let Some((input, below)) = role.bound(node) {
            entries.bound(input, below);
        }
        if let Some(rows) = role.distinct(node) {
            entries.demand_distinct(rows)?;
        }
    }
    Ok(())
}

/// Whether the result may be given to another device as its own, in a comparison of devices (`Compare::with_apart`). It
/// may not if that breaks what safety checks rely on: sorts get no NaN from the clamp before them, and indices that
/// sorts make are in range and distinct.
pub(crate) fn may_lend(t: TensorPtr, numbers: &[f64]) -> bool {
    match role(t) {
        Role::Makes => false,
        Role::RemovesNan => !numbers.iter().any(|x| x.is_nan()),
        Role::No | Role::Reads { .. } => true,
    }
}

/// The slot of the source that holds the operation's indices, if it has any.
pub(crate) fn slot(node: TensorPtr) -> Option<usize> {
    role(node).picks(node).map(|(slot, _)| slot)
}

/// What a computation must find in the operand that holds an operation's indices.
#[cfg(feature = "rpc")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexDemand {
    pub(crate) slot: usize,
    /// The exclusive upper bound of the indices.
    pub(crate) below: i64,
    /// Whether the indices in each row must differ.
    pub(crate) distinct: bool,
}

/// What the operation demands of its indices, if it has any. The answer assumes that no operand is repacked.
#[cfg(feature = "rpc")]
pub(crate) fn demand(node: TensorPtr) -> Option<IndexDemand> {
    let role = role(node);
    let (slot, below) = role.picks(node)?;
    Some(IndexDemand { slot, below, distinct: matches!(role, Role::Reads { distinct: Distinct::Always, .. }) })
}

/// The slot of the source that names the experts of each token, if the operation is a product of experts.
#[cfg(ggml_0_28)]
pub(crate) fn of_experts(node: TensorPtr) -> Option<usize> {
    if matches!(Operation::of(node), Some(Operation::MulMatId(_))) { slot(node) } else { None }
}

impl Role {
    /// The input that holds the operation's indices, with the indices' exclusive upper bound.
    fn bound(self, node: TensorPtr) -> Option<(TensorPtr, i64)> {
        let (slot, below) = self.picks(node)?;
        node.source(slot).filter(|t| is_input(*t)).map(|t| (t.root(), below))
    }

    /// The slot of the source that holds the operation's indices, and the indices' exclusive upper bound.
    fn picks(self, node: TensorPtr) -> Option<(usize, i64)> {
        let Self::Reads { slot, below, .. } = self else { return None };
        let (ne, axis) = match below {
            Bound::Source { slot, axis } => (node.source(slot)?.ne(), axis),
            Bound::Result { axis } => (node.ne(), axis),
        };
        Some((slot, *ne.get(axis)?))
    }

    /// The operand whose rows must each hold distinct indices, if that operand is an input or a view of one.
    fn distinct(self, node: TensorPtr) -> Option<TensorPtr> {
        let Self::Reads { slot, distinct, .. } = self else { return None };
        node.source(slot).filter(|t| distinct == Distinct::Always && is_input(*t))
    }
}

/// Finds the first repeated value in a row of `t`. `values` are those of the root of `t`. Returns the value's position
/// among them, and the value.
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
    t.is_view_op() && root.is_leaf() && root.is_input()
}

/// The exclusive upper bound of indices that builders trust: results of `argsort` and `top_k`, and views of these.
pub(crate) fn made_below(t: TensorPtr) -> Option<i64> {
    let root = t.root();
    if !is_trusted(root) || !(t == root || t.is_view_op()) {
        return None;
    }
    let [n, ..] = root.sources().next()?.ne();
    Some(n)
}
