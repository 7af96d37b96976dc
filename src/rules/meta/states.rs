//! The split state of an operation's result, given those of its operands: the subset of ggml's own rules that gives
//! correct results.

use crate::device::meta::SplitState;
use crate::header::{Owner, TensorPtr};
use crate::rules::table::row_of;
use crate::rules::{Refusal, Verdict, need};

const BIAS: &str = "the bias of each head depends on its index, so all operands must be mirrored";

/// How the result of an operation is split, and whether it is a partial sum.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitResult {
    pub(super) state: SplitState,
    /// Whether each device holds a partial sum, until an all-reduce adds them.
    pub(super) partial: bool,
}

/// How an operation treats split operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The result is computed element by element.
    Elements,
    /// The result is computed row by row.
    Rows,
    /// The result is computed element by element. The second operand is repeated.
    Broadcast,
    Product,
    /// The result has the same elements in the same order.
    Reshape,
    View,
    /// Each dimension moves to the axis with the number at its place in the list.
    Permute([usize; 4]),
    Transpose,
    SoftMax {
        bias: bool,
    },
    Rope,
    Pick,
    /// Rows are written to a tensor that is split in the same way.
    SetRows,
    Attention {
        bias: bool,
    },
    Glu,
    Cast,
    /// No operand may be split: each device computes the whole result.
    Whole,
}

/// Whether there is a rule for how a meta device splits the operation.
pub(crate) fn knows(t: TensorPtr) -> bool {
    row_of(t).is_ok_and(|row| row.split.is_some())
}

/// The split state of the result of `t`, given those of its sources by slot.
pub(super) fn result_of(t: TensorPtr, srcs: &[Option<SplitState>]) -> Verdict<SplitResult> {
    let Some(rule) = row_of(t)?.split else {
        return Err(Refusal("this crate knows no rule for the operation on a meta device"));
    };
    let at = |i: usize| srcs.get(i).and_then(Option::as_ref);
    let mirrored = || srcs.iter().flatten().all(|s| *s == SplitState::Mirrored);
    if rule == Rule::Product {
        return product(t, at(0), at(1));
    }
    let state = match at(0) {
        Some(SplitState::Along { axis, shares }) => split(rule, t, *axis, shares, srcs)?,
        Some(SplitState::Mirrored) if mirrored() && (rule != Rule::Cast || t.view_src().is_none()) => {
            SplitState::Mirrored
        }
        _ => return Err(Refusal("the operands must be split alike")),
    };
    Ok(SplitResult { state, partial: false })
}

/// The split state of a result whose first operand is split along `axis`.
fn split(rule: Rule, t: TensorPtr, axis: usize, shares: &[i64], srcs: &[Option<SplitState>]) -> Verdict<SplitState> {
    let same = |axis| SplitState::Along { axis, shares: shares.into() };
    let at = |i: usize| srcs.get(i).and_then(Option::as_ref);
    let rest_mirrored = srcs.iter().skip(1).flatten().all(|s| *s == SplitState::Mirrored);
    match rule {
        Rule::Broadcast => {
            let one = t.source(1).is_some_and(|b| b.ne().get(axis) == Some(&1));
            need(
                at(1) == Some(&same(axis)) || (one && rest_mirrored),
                "the second operand must be split as the first, or have length 1 along that axis and be mirrored",
            )?;
            Ok(same(axis))
        }
        Rule::Rows | Rule::SoftMax { .. } if axis == 0 => Err(Refusal("it needs whole rows, not a split along axis 0")),
        Rule::Elements | Rule::Rows => Ok(same(axis)),
        Rule::SoftMax { bias } => {
            need(t.source(1).is_none() && t.source(2).is_none(), "with a mask or sinks, all must be mirrored")?;
            need(!bias, BIAS)?;
            Ok(same(axis))
        }
        Rule::Reshape => reshaped(t, axis, shares),
        Rule::Permute(axes) => axes.get(axis).copied().map(same).ok_or(Refusal("the permutation is invalid")),
        Rule::Transpose => Ok(same(if axis < 2 { axis ^ 1 } else { axis })),
        Rule::Rope => {
            need(axis == 1 && rest_mirrored, "only the first operand may be split, and only along axis 1 (heads)")?;
            Ok(same(axis))
        }
        Rule::Pick => {
            need(axis == 0 && rest_mirrored, "only the first operand may be split, and only along axis 0")?;
            Ok(same(axis))
        }
        Rule::Attention { bias } => {
            need(!bias, BIAS)?;
            attention(t, axis, shares, srcs)
        }
        Rule::Glu => {
            need(t.source(1).is_some() || axis != 0, "both halves of a row must be on one device")?;
            need(t.source(1).is_none() || at(1) == Some(&same(axis)), "the operands must be split alike")?;
            Ok(same(axis))
        }
        Rule::Cast => {
            need(t.view_src().is_none(), "a copy into a split tensor has no rule")?;
            Ok(same(axis))
        }
        Rule::SetRows => {
            need(at(1) == Some(&SplitState::Mirrored), "the indices must be mirrored")?;
            let alike = axis == 0 && at(2) == Some(&same(axis));
            need(alike, "the rows and the tensor that they are written to must be split alike along axis 0")?;
            Ok(same(axis))
        }
        Rule::View => {
            let is_dense = t.is_contiguous() && t.source(0).is_some_and(TensorPtr::is_contiguous);
            need(
                is_dense && t.root().owner() == Owner::State,
                "a view of part of a split tensor has no rule, unless it is a contiguous view of a contiguous state; use \
                 `reshape` or `permute`",
            )?;
            reshaped(t, axis, shares)
        }
        Rule::Whole | Rule::Product => Err(Refusal("all operands must be mirrored")),
    }
}

fn product(t: TensorPtr, w: Option<&SplitState>, x: Option<&SplitState>) -> Verdict<SplitResult> {
    use SplitState::{Along, Mirrored};
    let whole = |state| Ok(SplitResult { state, partial: false });
    match (w, x) {
        (Some(Mirrored), Some(Mirrored)) => whole(Mirrored),
        (Some(Along { axis: 1, shares }), Some(Mirrored)) => whole(Along { axis: 0, shares: shares.clone() }),
        (Some(Mirrored), Some(x @ Along { axis: 1, .. })) => whole(x.clone()),
        (Some(w @ Along { axis: 0, .. }), Some(x)) if w == x => {
            // An all-reduce adds numbers of `f32`.
            need(t.nb()[0] == size_of::<f32>(), "partial sums are f32")?;
            Ok(SplitResult { state: Mirrored, partial: true })
        }
        (Some(w @ Along { axis: 2, .. }), Some(x)) if w == x => whole(w.clone()),
        _ => Err(Refusal(
            "the first operand must be split along axis 1, or both alike along axis 0 or 2, or only the second along \
                  axis 1",
        )),
    }
}

/// How a reshaped tensor is split. The split moves to the axis up to which the new dimensions have the same product as
/// the old ones up to the old axis.
fn reshaped(t: TensorPtr, axis: usize, shares: &[i64]) -> Verdict<SplitState> {
    const ODD: &str = "the split does not fall on an axis of the new shape";
    let Some(from) = t.source(0).map(TensorPtr::ne) else { return Err(Refusal("the operation lacks an operand")) };
    let end = |ne: [i64; 4], axis: usize| ne.iter().take(axis + 1).product::<i64>();
    let last = |ne: [i64; 4]| ne.iter().rposition(|&n| n != 1).unwrap_or(0);
    let (to, block) = (t.ne(), end(from, axis));
    // ggml chooses the axis in this way. It also takes axes where the product is only a multiple, which are refused
    // below.
    let axis_to = if axis == last(from) { Some(last(to)) } else { (0..4).find(|&d| end(to, d) % block == 0) };
    let axis_to = axis_to.filter(|&d| end(to, d) == block).ok_or(Refusal(ODD))?;
    let (Some(&len), Some(&len_to)) = (from.get(axis), to.get(axis_to)) else { return Err(Refusal(ODD)) };
    scaled(shares, len, len_to).map(|shares| SplitState::Along { axis: axis_to, shares }).ok_or(Refusal(ODD))
}

/// Scales shares of a dimension of `from` to shares of one of `to`, if all results are integers.
fn scaled(shares: &[i64], from: i64, to: i64) -> Option<Box<[i64]>> {
    let one = |&share: &i64| share.checked_mul(to).filter(|n| n % from == 0).map(|n| n / from);
    shares.iter().map(one).collect()
}

/// The rule for attention. Queries, keys and values are split alike by heads (axis 2); the result has heads along axis
/// 1.
fn attention(t: TensorPtr, axis: usize, shares: &[i64], srcs: &[Option<SplitState>]) -> Verdict<SplitState> {
    let heads = |i: usize| t.source(i).map_or(0, |t| t.ne()[2]);
    let alike = |i: usize| match srcs.get(i) {
        Some(Some(SplitState::Along { axis: 2, shares: of })) => {
            scaled(shares, heads(0), heads(i)).as_ref() == Some(of)
        }
        _ => false,
    };
    need(axis == 2 && alike(1) && alike(2), "queries, keys and values must be split alike along axis 2 (heads)")?;
    need(srcs.iter().skip(3).flatten().all(|s| *s == SplitState::Mirrored), "the mask must be mirrored")?;
    // Each device numbers its own heads from 0. With a mask for each head, it would read the masks of other heads.
    need(t.source(3).is_none_or(|mask| mask.ne()[2] == 1), "with a mask for each head, all must be mirrored")?;
    need(t.source(4).is_none(), "with sinks, all operands must be mirrored")?;
    Ok(SplitState::Along { axis: 1, shares: shares.into() })
}

#[cfg(test)]
mod tests;
