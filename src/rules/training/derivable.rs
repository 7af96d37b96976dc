//! Whether ggml can derive a loss: its backward pass knows some operations only, aborts at the others, and takes shapes and
//! strides for granted.

use ggml_sys as sys;

use super::passes::{followed, fresh, passes};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, Kind};
use crate::header::{Layout, TensorPtr};
use crate::rules::Refusal;

/// The call that errors name.
const CALL: &str = "OptContext::graphs";

/// Checks that every operation between the parameters and the loss, which is the last of `forward`, has a backward pass
/// for these operands, that each parameter is reached, and that nothing else writes to one.
pub(crate) fn check(forward: &Graph<'_>, parameters: &[TensorPtr]) -> Result<()> {
    let entries = forward.entries();
    let position = |t: TensorPtr| forward.position(t);
    let depends = dependent(forward, parameters)?;
    let needs = |t: TensorPtr| position(t).is_some_and(|i| depends.get(i) == Some(&true));
    // The gradient of each entry: backwards from the loss.
    let mut gradients: Vec<Option<Layout>> = vec![None; entries.len()];
    if let (Some(gradient), Some(loss)) = (gradients.last_mut(), entries.last()) {
        *gradient = Some(fresh(loss.ptr.ne()));
    }
    for (i, e) in entries.iter().enumerate().rev() {
        let Some(Some(gradient)) = gradients.get(i).copied() else { continue };
        if e.kind != Kind::Node {
            continue;
        }
        let float = |t: TensorPtr| t.dtype() == DType::F32;
        if !float(e.ptr) || !e.ptr.sources().filter(|&t| needs(t)).all(float) {
            return Err(refused(e.ptr, "gradients are only passed through f32"));
        }
        for pass in passes(e.ptr, gradient, needs).map_err(|refusal| refusal.of(e.ptr, "all"))? {
            if let Some(gradient) = position(pass.to).and_then(|i| gradients.get_mut(i)) {
                *gradient = Some(pass.join(*gradient).map_err(|refusal| refusal.of(e.ptr, "all"))?);
            }
        }
        // C looks at the gradients of all sources that depend on a parameter, those that it passes none on to as well.
        let mut sources = e.ptr.sources().filter_map(position);
        if sources.any(|i| depends.get(i) == Some(&true) && matches!(gradients.get(i), Some(None))) {
            return Err(refused(e.ptr, "an operand that gets no gradient from it must get one from a later operation"));
        }
    }
    let reached = |t: &TensorPtr| position(*t).is_some_and(|i| matches!(gradients.get(i), Some(Some(_))));
    match parameters.iter().find(|t| !reached(t)) {
        None => Ok(()),
        Some(t) => Err(Error::NotPart { call: CALL, tensor: t.info(), whole: "what the loss is derived by" }),
    }
}

/// Which entries depend on a parameter, as ggml sees it, and what it asserts of all of them.
fn dependent(forward: &Graph<'_>, parameters: &[TensorPtr]) -> Result<Vec<bool>> {
    let mut depends = vec![false; forward.entries().len()];
    for (i, e) in forward.entries().iter().enumerate() {
        let t = e.ptr;
        if e.kind == Kind::Node && !looks_only(t) && parameters.contains(&t.root()) {
            return Err(refused(t, "it writes to a parameter, which only the optimiser may do"));
        }
        let inherited = |s: &TensorPtr| forward.position(*s).is_some_and(|i| depends.get(i) == Some(&true));
        // ggml takes what it looks at in `i32` for indices.
        let from = followed(t).filter(inherited).find(|_| t.dtype() != DType::I32);
        if from.is_some_and(|from| !matches!(from.dtype(), DType::F32 | DType::F16)) {
            return Err(refused(t, "gradients are only passed through f32"));
        }
        if t.view_src().is_some() && !looks_only(t) {
            match from {
                // C asserts so: what a gradient is computed from would have been overwritten.
                Some(_) => need_copy(forward, t)?,
                None => need_unused(forward, t, depends.get(..i).unwrap_or_default())?,
            }
        }
        if let Some(depends) = depends.get_mut(i) {
            *depends = parameters.contains(&t) || from.is_some();
        }
    }
    Ok(depends)
}

/// Checks that what works in place is a copy into something that nothing else uses: the one such operation that ggml
/// derives.
fn need_copy(forward: &Graph<'_>, t: TensorPtr) -> Result<()> {
    if t.op() != sys::GGML_OP_CPY {
        return Err(refused(t, "an operation that works in place has no backward pass"));
    }
    // What it copies to, and what that looks at.
    let [_, to, ..] = t.slots();
    let target: Vec<_> = std::iter::successors(to, |&t| first_source(t)).collect();
    let uses = |s: TensorPtr| s.root() == t.root() && looked_at(s) != t;
    let other = |e: TensorPtr| e != t && !target.contains(&e) && e.sources().any(uses);
    if forward.entries().iter().any(|e| other(e.ptr)) {
        return Err(refused(t, "what it overwrites is used by another operation as well; copy that (`dup`) before"));
    }
    Ok(())
}

/// Checks that nothing whose gradient is computed, perhaps from its operands and its result, comes before `t`, which writes
/// to them. C does not look at that.
fn need_unused(forward: &Graph<'_>, t: TensorPtr, depends: &[bool]) -> Result<()> {
    let overwritten = |e: TensorPtr| e.sources().chain([e]).any(|s| s.root() == t.root());
    let before = forward.entries().iter().zip(depends).filter(|(_, depends)| **depends);
    if before.map(|(e, _)| e.ptr).any(|e| !looks_only(e) && overwritten(e)) {
        return Err(refused(t, "it writes over what a gradient is computed from; copy that (`dup`) before"));
    }
    Ok(())
}

/// The operation behind any number of looks at its result.
fn looked_at(t: TensorPtr) -> TensorPtr {
    std::iter::successors(Some(t), |&t| first_source(t)).last().unwrap_or(t)
}

/// The source of what only looks at it.
fn first_source(t: TensorPtr) -> Option<TensorPtr> {
    if looks_only(t) { t.sources().next() } else { None }
}

/// Whether the operation only looks at its source's memory.
fn looks_only(t: TensorPtr) -> bool {
    t.is_view_op() && t.op() != sys::GGML_OP_NONE
}

fn refused(t: TensorPtr, reason: &'static str) -> Error {
    Refusal(reason).of(t, "all")
}
