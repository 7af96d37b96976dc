//! The split state of an operation's result, given those of its operands: the subset of ggml's own rules that gives
//! correct results.

use ggml_sys as sys;

use crate::device::meta::State;
use crate::header::{Owner, TensorPtr};
use crate::rules::{Refusal, Verdict, need};

/// How the result of an operation is split.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitResult {
    pub(super) state: State,
    /// Whether each device holds a partial sum, until an all-reduce adds them.
    pub(super) partial: bool,
}

/// How an operation treats split operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Element by element.
    Elements,
    /// Row by row.
    Rows,
    /// Element by element, the second operand repeated.
    Broadcast,
    Product,
    /// The same elements in the same order.
    Reshape,
    View,
    Permute,
    Transpose,
    SoftMax,
    Rope,
    Pick,
    /// Rows are written to a tensor that is split alike.
    SetRows,
    Attention,
    Glu,
    Cast,
    /// No operand may be split; each device computes the whole result.
    Whole,
}

fn rule(op: sys::ggml_op) -> Option<Rule> {
    Some(match op {
        sys::GGML_OP_UNARY
        | sys::GGML_OP_SQR
        | sys::GGML_OP_SQRT
        | sys::GGML_OP_LOG
        | sys::GGML_OP_SIN
        | sys::GGML_OP_COS
        | sys::GGML_OP_SCALE
        | sys::GGML_OP_CLAMP
        | sys::GGML_OP_LEAKY_RELU => Rule::Elements,
        sys::GGML_OP_NORM
        | sys::GGML_OP_RMS_NORM
        | sys::GGML_OP_L2_NORM
        | sys::GGML_OP_SUM_ROWS
        | sys::GGML_OP_MEAN => Rule::Rows,
        sys::GGML_OP_ADD | sys::GGML_OP_SUB | sys::GGML_OP_MUL | sys::GGML_OP_DIV => Rule::Broadcast,
        sys::GGML_OP_MUL_MAT => Rule::Product,
        sys::GGML_OP_CONT | sys::GGML_OP_RESHAPE => Rule::Reshape,
        sys::GGML_OP_VIEW => Rule::View,
        sys::GGML_OP_PERMUTE => Rule::Permute,
        sys::GGML_OP_TRANSPOSE => Rule::Transpose,
        sys::GGML_OP_SOFT_MAX => Rule::SoftMax,
        sys::GGML_OP_ROPE => Rule::Rope,
        sys::GGML_OP_GET_ROWS => Rule::Pick,
        sys::GGML_OP_SET_ROWS => Rule::SetRows,
        sys::GGML_OP_FLASH_ATTN_EXT => Rule::Attention,
        sys::GGML_OP_GLU => Rule::Glu,
        sys::GGML_OP_CPY => Rule::Cast,
        sys::GGML_OP_REPEAT
        | sys::GGML_OP_CONCAT
        | sys::GGML_OP_GROUP_NORM
        | sys::GGML_OP_SUM
        | sys::GGML_OP_CUMSUM
        | sys::GGML_OP_ARGMAX
        | sys::GGML_OP_OUT_PROD
        | sys::GGML_OP_DIAG_MASK_INF
        | sys::GGML_OP_IM2COL
        | sys::GGML_OP_POOL_2D
        | sys::GGML_OP_UPSCALE
        | sys::GGML_OP_PAD => Rule::Whole,
        _ => return None,
    })
}

/// Whether there is a rule for the operation.
pub(crate) fn knows(t: TensorPtr) -> bool {
    t.op() == sys::GGML_OP_NONE || rule(t.op()).is_some()
}

/// The split state of the result of `t`, given those of its sources by slot.
pub(super) fn result_of(t: TensorPtr, srcs: &[Option<State>]) -> Verdict<SplitResult> {
    let Some(rule) = rule(t.op()) else {
        return Err(Refusal("this crate knows no rule for the operation on a meta device"));
    };
    let at = |i: usize| srcs.get(i).and_then(Option::as_ref);
    let mirrored = || srcs.iter().flatten().all(|s| *s == State::Mirrored);
    if rule == Rule::Product {
        return product(t, at(0), at(1));
    }
    let state = match at(0) {
        Some(State::Along { axis, shares }) => split(rule, t, *axis, shares, srcs)?,
        Some(State::Mirrored) if mirrored() && (rule != Rule::Cast || t.view_src().is_none()) => State::Mirrored,
        _ => return Err(Refusal("the operands must be split alike")),
    };
    Ok(SplitResult { state, partial: false })
}

/// The split state of a result whose first operand is split along `axis`.
fn split(rule: Rule, t: TensorPtr, axis: usize, shares: &[i64], srcs: &[Option<State>]) -> Verdict<State> {
    let same = |axis| State::Along { axis, shares: shares.into() };
    let at = |i: usize| srcs.get(i).and_then(Option::as_ref);
    let rest_mirrored = srcs.iter().skip(1).flatten().all(|s| *s == State::Mirrored);
    match rule {
        Rule::Broadcast => {
            let one = t.source(1).is_some_and(|b| b.ne().get(axis) == Some(&1));
            need(
                at(1) == Some(&same(axis)) || (one && rest_mirrored),
                "the second operand must be split as the first, or have length 1 along that axis and be mirrored",
            )?;
            Ok(same(axis))
        }
        Rule::Rows | Rule::SoftMax if axis == 0 => Err(Refusal("it needs whole rows, not a split along axis 0")),
        Rule::Elements | Rule::Rows => Ok(same(axis)),
        Rule::SoftMax => {
            need(t.source(1).is_none() && t.source(2).is_none(), "with a mask or sinks, all must be mirrored")?;
            need(!has_bias(t), "the bias of each head depends on its index, so all operands must be mirrored")?;
            Ok(same(axis))
        }
        Rule::Reshape => reshaped(t, axis, shares),
        Rule::Permute => {
            let to = t.op_params().get(axis).and_then(|&to| usize::try_from(to).ok());
            to.filter(|&to| to < 4).map(same).ok_or(Refusal("the permutation is invalid"))
        }
        Rule::Transpose => Ok(same(if axis < 2 { axis ^ 1 } else { axis })),
        Rule::Rope => {
            need(axis == 1 && rest_mirrored, "only the first operand may be split, and only along axis 1 (heads)")?;
            Ok(same(axis))
        }
        Rule::Pick => {
            need(axis == 0 && rest_mirrored, "only the first operand may be split, and only along axis 0")?;
            Ok(same(axis))
        }
        Rule::Attention => attention(t, axis, shares, srcs),
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
            need(at(1) == Some(&State::Mirrored), "the indices must be mirrored")?;
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

/// Whether `max_bias`, the second parameter of attention and softmax, is not zero.
fn has_bias(t: TensorPtr) -> bool {
    t.op_params().get(1).is_none_or(|&bits| f32::from_bits(bits.cast_unsigned()) != 0.0)
}

fn product(t: TensorPtr, w: Option<&State>, x: Option<&State>) -> Verdict<SplitResult> {
    use State::{Along, Mirrored};
    let whole = |state| Ok(SplitResult { state, partial: false });
    match (w, x) {
        (Some(Mirrored), Some(Mirrored)) => whole(Mirrored),
        (Some(Along { axis: 1, shares }), Some(Mirrored)) => whole(Along { axis: 0, shares: shares.clone() }),
        (Some(Mirrored), Some(x @ Along { axis: 1, .. })) => whole(x.clone()),
        (Some(w @ Along { axis: 0, .. }), Some(x)) if w == x => {
            // The all-reduce adds f32.
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

/// The split moves to the axis up to and including which the dimensions have the same product.
fn reshaped(t: TensorPtr, axis: usize, shares: &[i64]) -> Verdict<State> {
    const ODD: &str = "the split does not fall on an axis of the new shape";
    let Some(from) = t.source(0).map(TensorPtr::ne) else { return Err(Refusal("the operation lacks an operand")) };
    let end = |ne: [i64; 4], axis: usize| ne.iter().take(axis + 1).product::<i64>();
    let last = |ne: [i64; 4]| ne.iter().rposition(|&n| n != 1).unwrap_or(0);
    let (to, block) = (t.ne(), end(from, axis));
    // ggml's choice. It also takes axes that only fit a multiple, which are refused below.
    let axis_to = if axis == last(from) { Some(last(to)) } else { (0..4).find(|&d| end(to, d) % block == 0) };
    let axis_to = axis_to.filter(|&d| end(to, d) == block).ok_or(Refusal(ODD))?;
    let (Some(&len), Some(&len_to)) = (from.get(axis), to.get(axis_to)) else { return Err(Refusal(ODD)) };
    scaled(shares, len, len_to).map(|shares| State::Along { axis: axis_to, shares }).ok_or(Refusal(ODD))
}

/// Scales shares of `from` to shares of `to`, if all are integers.
fn scaled(shares: &[i64], from: i64, to: i64) -> Option<Box<[i64]>> {
    let one = |&share: &i64| share.checked_mul(to).filter(|n| n % from == 0).map(|n| n / from);
    shares.iter().map(one).collect()
}

/// Queries, keys and values are split alike by heads (axis 2); the result has heads along axis 1.
fn attention(t: TensorPtr, axis: usize, shares: &[i64], srcs: &[Option<State>]) -> Verdict<State> {
    let heads = |i: usize| t.source(i).map_or(0, |t| t.ne()[2]);
    let alike = |i: usize| match srcs.get(i) {
        Some(Some(State::Along { axis: 2, shares: of })) => scaled(shares, heads(0), heads(i)).as_ref() == Some(of),
        _ => false,
    };
    need(axis == 2 && alike(1) && alike(2), "queries, keys and values must be split alike along axis 2 (heads)")?;
    need(srcs.iter().skip(3).flatten().all(|s| *s == State::Mirrored), "the mask must be mirrored")?;
    // A device would count its own heads.
    need(t.source(3).is_none_or(|mask| mask.ne()[2] == 1), "with a mask for each head, all must be mirrored")?;
    need(t.source(4).is_none(), "with sinks, all operands must be mirrored")?;
    need(!has_bias(t), "the bias of each head depends on its index, so all operands must be mirrored")?;
    Ok(State::Along { axis: 1, shares: shares.into() })
}

#[cfg(test)]
mod tests;
