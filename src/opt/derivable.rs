//! Whether ggml can derive a loss: its backward pass knows some operations only, and aborts at the others.

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, Kind};
use crate::ops::kernel::op_name;
use crate::tensor::ptr::TensorPtr;

/// The call that errors name.
const CALL: &str = "Training::new";

/// Checks that every operation between the parameters and the loss, which is the last of `forward`, has a backward pass
/// for these operands, that each parameter is reached, and that nothing else writes to one.
pub(super) fn check(forward: &Graph<'_>, parameters: &[TensorPtr]) -> Result<()> {
    let entries = forward.entries();
    // Which entries depend on a parameter, as ggml sees it.
    let mut depends = vec![false; entries.len()];
    let position = |t: TensorPtr| forward.position(t);
    for (i, e) in entries.iter().enumerate() {
        let inherits = followed(e.ptr).filter_map(position).any(|i| depends.get(i) == Some(&true));
        if let Some(depends) = depends.get_mut(i) {
            *depends = parameters.contains(&e.ptr) || inherits;
        }
        if e.kind == Kind::Node && !looks_only(e.ptr) && parameters.contains(&e.ptr.root()) {
            return Err(refused(e.ptr, "it writes to a parameter, which only the optimiser may do"));
        }
    }
    // Which entries get a gradient: backwards from the loss.
    let mut derived = vec![false; entries.len()];
    if let Some(last) = derived.last_mut() {
        *last = true;
    }
    for (i, e) in entries.iter().enumerate().rev() {
        if derived.get(i) != Some(&true) || e.kind != Kind::Node {
            continue;
        }
        // C asserts so: what a gradient is computed from would have been overwritten.
        if e.ptr.view_src().is_some() && !looks_only(e.ptr) {
            return Err(refused(e.ptr, "an operation that works in place has no backward pass"));
        }
        let needs = |t: TensorPtr| position(t).is_some_and(|i| depends.get(i) == Some(&true));
        has_backward(e.ptr, needs).map_err(|why| refused(e.ptr, why))?;
        for i in followed(e.ptr).filter_map(position) {
            if let (Some(true), Some(derived)) = (depends.get(i), derived.get_mut(i)) {
                *derived = true;
            }
        }
        // C looks at the gradients of all sources that depend on a parameter, those that it passes none on to as well.
        let mut sources = e.ptr.sources().filter_map(position);
        if sources.any(|i| depends.get(i) == Some(&true) && derived.get(i) != Some(&true)) {
            return Err(refused(e.ptr, "an operand that gets no gradient from it must get one from a later operation"));
        }
    }
    let reached = |t: &TensorPtr| position(*t).is_some_and(|i| derived.get(i) == Some(&true));
    match parameters.iter().find(|t| !reached(t)) {
        None => Ok(()),
        Some(t) => Err(Error::NotPart { call: CALL, tensor: t.info(), whole: "what the loss is derived by" }),
    }
}

/// The sources that a gradient is passed on to, if they depend on a parameter.
fn followed(t: TensorPtr) -> impl Iterator<Item = TensorPtr> {
    let skip = match t.op() {
        // Its kernel lends no more than its shape.
        sys::GGML_OP_IM2COL => 1,
        sys::GGML_OP_UNARY if is_constant(t) => usize::MAX,
        _ => 0,
    };
    t.sources().skip(skip)
}

/// Whether a function of elements is constant but for jumps.
fn is_constant(t: TensorPtr) -> bool {
    matches!(unary_op(t), sys::GGML_UNARY_OP_SGN | sys::GGML_UNARY_OP_STEP)
}

fn unary_op(t: TensorPtr) -> sys::ggml_unary_op {
    let [op, ..] = t.op_params();
    op.cast_unsigned()
}

/// Whether the operation only looks at its source's memory.
fn looks_only(t: TensorPtr) -> bool {
    matches!(t.op(), sys::GGML_OP_RESHAPE | sys::GGML_OP_VIEW | sys::GGML_OP_PERMUTE | sys::GGML_OP_TRANSPOSE)
}

/// Whether ggml can pass a gradient through `t` to those of its sources that need one.
fn has_backward(t: TensorPtr, needs: impl Fn(TensorPtr) -> bool) -> Result<(), &'static str> {
    let float = |t: TensorPtr| t.dtype() == DType::F32;
    let mut srcs = t.sources();
    let (a, b) = (srcs.next(), srcs.next());
    let b_needs = b.is_some_and(&needs);
    let same = a.zip(b).is_some_and(|(a, b)| a.ne() == b.ne());
    let (holds, otherwise) = match t.op() {
        sys::GGML_OP_DUP
        | sys::GGML_OP_ADD
        | sys::GGML_OP_MUL
        | sys::GGML_OP_SQR
        | sys::GGML_OP_SQRT
        | sys::GGML_OP_LOG
        | sys::GGML_OP_SIN
        | sys::GGML_OP_COS
        | sys::GGML_OP_SUM
        | sys::GGML_OP_SUM_ROWS
        | sys::GGML_OP_REPEAT
        | sys::GGML_OP_RMS_NORM
        | sys::GGML_OP_SCALE
        | sys::GGML_OP_CONT
        | sys::GGML_OP_RESHAPE
        | sys::GGML_OP_PERMUTE
        | sys::GGML_OP_TRANSPOSE
        | sys::GGML_OP_POOL_2D => (true, ""),
        sys::GGML_OP_SUB | sys::GGML_OP_DIV => {
            (!b_needs || same, "its second operand has no gradient unless both have one shape; use `repeat`")
        }
        sys::GGML_OP_MEAN => {
            (t.elements() == 1, "the mean of several rows has no backward pass; use `sum_rows`, `scale`")
        }
        sys::GGML_OP_MUL_MAT => {
            let upper = |t: TensorPtr| t.ne().into_iter().skip(2).collect::<Vec<_>>();
            let repeats = a.zip(b).is_some_and(|(a, b)| upper(a) != upper(b));
            (!a.is_some_and(&needs) || !repeats, "a first operand that is repeated has no gradient; use `repeat`")
        }
        sys::GGML_OP_SOFT_MAX => {
            // C passes no gradient to mask and sinks, and derives as if there were no sinks.
            let plain = !b_needs && t.srcs().get(2).is_none_or(|sinks| sinks.is_null());
            let [_, max_bias, ..] = t.op_params();
            (plain && max_bias == 0, "it has no backward pass with sinks, `max_bias`, or a mask made of parameters")
        }
        sys::GGML_OP_CROSS_ENTROPY_LOSS => (!b_needs, "the labels can't depend on a parameter"),
        sys::GGML_OP_IM2COL => {
            let [_, _, _, _, _, _, two, ..] = t.op_params();
            (two == 1, "only two dimensions have a backward pass")
        }
        sys::GGML_OP_UNARY => (
            matches!(
                unary_op(t),
                sys::GGML_UNARY_OP_ABS
                    | sys::GGML_UNARY_OP_SGN
                    | sys::GGML_UNARY_OP_NEG
                    | sys::GGML_UNARY_OP_STEP
                    | sys::GGML_UNARY_OP_RELU
                    | sys::GGML_UNARY_OP_SILU
                    | sys::GGML_UNARY_OP_EXP
                    | sys::GGML_UNARY_OP_EXPM1
                    | sys::GGML_UNARY_OP_SOFTPLUS
            ),
            "ggml has no backward pass for it",
        ),
        _ => (false, "ggml has no backward pass for it that this crate has checked"),
    };
    if !holds {
        return Err(otherwise);
    }
    let types = float(t) && t.sources().all(float);
    if types { Ok(()) } else { Err("gradients are only passed through f32") }
}

fn refused(t: TensorPtr, reason: &'static str) -> Error {
    Error::Unsupported {
        op: op_name(t).into(),
        operands: t.sources().chain([t]).map(TensorPtr::info).collect(),
        device: "all".into(),
        reason: reason.into(),
    }
}
