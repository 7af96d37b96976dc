//! Whether ggml can differentiate a loss. Its backward pass knows only some operations, aborts at others, and assumes
//! shapes and strides.

use ggml_sys as sys;

use super::passes::{followed, fresh, passes};
use crate::dtype::DType;
use crate::entries::{Entries, Kind};
use crate::error::{Error, Result};
use crate::header::{Layout, TensorPtr};
use crate::rules::Refusal;

/// The call that errors name.
const CALL: &str = "OptContext::graphs";

/// The device that errors name, because no device has other derivatives: "(device of any kind)".
const ANY: &str = "of any kind";

/// Checks that every operation between the parameters and the loss, the last entry of `forward`, has a backward pass
/// for its operands, that each parameter gets a gradient, and that nothing else writes to a parameter.
pub(crate) fn check(forward: &Entries, parameters: &[TensorPtr]) -> Result<()> {
    let entries = forward;
    let position = |t: TensorPtr| forward.position(t);
    let depends = dependent(forward, parameters)?;
    let needs = |t: TensorPtr| position(t).is_some_and(|i| depends.get(i) == Some(&true));
    // The layout of each entry's gradient, filled in backwards from the loss.
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
            return Err(refused(e.ptr, "gradients only pass through f32; it depends on a parameter"));
        }
        for pass in passes(e.ptr, gradient, needs).map_err(|refusal| refusal.of(e.ptr, ANY))? {
            if let Some(gradient) = position(pass.to).and_then(|i| gradients.get_mut(i)) {
                *gradient = Some(pass.join(*gradient).map_err(|refusal| refusal.of(e.ptr, ANY))?);
            }
        }
        // C reads the gradients of all sources that depend on a parameter, even of those that it passes none to.
        let mut sources = e.ptr.sources().filter_map(position);
        if sources.any(|i| depends.get(i) == Some(&true) && matches!(gradients.get(i), Some(None))) {
            return Err(refused(e.ptr, "an operand that gets no gradient from it must get one from a later operation"));
        }
    }
    let reached = |t: &TensorPtr| position(*t).is_some_and(|i| matches!(gradients.get(i), Some(Some(_))));
    match parameters.iter().find(|t| !reached(t)) {
        None => Ok(()),
        Some(t) => Err(Error::NotPart { call: CALL, tensor: t.info(), whole: "what the loss depends on" }),
    }
}

/// Finds the entries that depend on a parameter, as ggml does, and checks what it asserts of them.
fn dependent(forward: &Entries, parameters: &[TensorPtr]) -> Result<Vec<bool>> {
    let mut depends = vec![false; forward.len()];
    for (i, e) in forward.iter().enumerate() {
        let t = e.ptr;
        if e.kind == Kind::Node && !looks_only(t) && parameters.contains(&t.root()) {
            return Err(refused(t, "it writes to a parameter, which only the optimiser may do"));
        }
        let inherited = |s: &TensorPtr| forward.position(*s).is_some_and(|i| depends.get(i) == Some(&true));
        // ggml takes sources of an `i32` operation for indices, which have no gradient.
        let from = followed(t).filter(inherited).find(|_| t.dtype() != DType::I32);
        if from.is_some_and(|from| !matches!(from.dtype(), DType::F32 | DType::F16)) {
            return Err(refused(t, "gradients only pass through f32; it depends on a parameter"));
        }
        if t.view_src().is_some() && !looks_only(t) {
            match from {
                // C asserts it: the operation overwrites what a gradient is computed from.
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

/// Checks that an in-place operation is a copy into a tensor without other uses, the only one that ggml differentiates.
fn need_copy(forward: &Entries, t: TensorPtr) -> Result<()> {
    if t.op() != sys::GGML_OP_CPY {
        return Err(refused(t, "an in-place operation has no backward pass; use the one that makes a new tensor"));
    }
    // The target of the copy, and what it is a view of.
    let [_, to, ..] = t.slots();
    let target: Vec<_> = std::iter::successors(to, |&t| first_source(t)).collect();
    let uses = |s: TensorPtr| s.root() == t.root() && looked_at(s) != t;
    let other = |e: TensorPtr| e != t && !target.contains(&e) && e.sources().any(uses);
    if forward.iter().any(|e| other(e.ptr)) {
        return Err(refused(t, "another operation uses what it overwrites; copy that (`dup`) before"));
    }
    Ok(())
}

/// Checks that `t` does not overwrite the operands or the result of an earlier operation with a gradient, which may be
/// computed from them. C does not check it.
fn need_unused(forward: &Entries, t: TensorPtr, depends: &[bool]) -> Result<()> {
    let overwritten = |e: TensorPtr| e.sources().chain([e]).any(|s| s.root() == t.root());
    let before = forward.iter().zip(depends).filter(|(_, depends)| **depends);
    if before.map(|(e, _)| e.ptr).any(|e| !looks_only(e) && overwritten(e)) {
        return Err(refused(t, "it overwrites what a gradient is computed from; copy that (`dup`) before"));
    }
    Ok(())
}

/// The operation behind a chain of views.
fn looked_at(t: TensorPtr) -> TensorPtr {
    std::iter::successors(Some(t), |&t| first_source(t)).last().unwrap_or(t)
}

/// The source of a plain view.
fn first_source(t: TensorPtr) -> Option<TensorPtr> {
    if looks_only(t) { t.sources().next() } else { None }
}

/// Whether the operation is a plain view of its source.
fn looks_only(t: TensorPtr) -> bool {
    t.is_view_op() && t.op() != sys::GGML_OP_NONE
}

fn refused(t: TensorPtr, reason: &'static str) -> Error {
    Refusal(reason).of(t, ANY)
}
