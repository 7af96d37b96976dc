//! Whether ggml can differentiate a loss. Its backward pass knows only some operations, aborts at others, and assumes
//! shapes and strides.

use super::passes::{followed, fresh, passes};
use crate::dtype::DType;
use crate::entries::{Entries, Kind};
use crate::error::{Error, Result};
use crate::header::{Layout, TensorPtr};
use crate::op::Operation;
use crate::rules::need;

/// The call that errors of these checks name.
const CALL: &str = "OptContext::graphs";

/// The device that errors of these checks name: "(device of any kind)". Derivatives are the same on all devices.
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
        let floats = float(e.ptr) && e.ptr.sources().filter(|&t| needs(t)).all(float);
        require(floats, e.ptr, "gradients only pass through f32; it depends on a parameter")?;
        for pass in passes(e.ptr, gradient, needs).map_err(|refusal| refusal.of(e.ptr, ANY))? {
            if let Some(gradient) = position(pass.to).and_then(|i| gradients.get_mut(i)) {
                *gradient = Some(pass.join(*gradient).map_err(|refusal| refusal.of(e.ptr, ANY))?);
            }
        }
        // C reads the gradient of each source that depends on a parameter, even if the operation passes no gradient to
        // that source.
        let mut sources = e.ptr.sources().filter_map(position);
        let lacks = sources.any(|i| depends.get(i) == Some(&true) && matches!(gradients.get(i), Some(None)));
        require(!lacks, e.ptr, "an operand that gets no gradient from it must get one from a later operation")?;
    }
    let reached = |t: &TensorPtr| position(*t).is_some_and(|i| matches!(gradients.get(i), Some(Some(_))));
    match parameters.iter().find(|t| !reached(t)) {
        None => Ok(()),
        Some(t) => Err(Error::NotPart { call: CALL, tensor: t.info(), whole: "what the loss depends on" }),
    }
}

/// Finds the entries that depend on a parameter, as ggml does, and checks what ggml asserts of these entries.
fn dependent(forward: &Entries, parameters: &[TensorPtr]) -> Result<Vec<bool>> {
    let mut depends = vec![false; forward.len()];
    for (i, e) in forward.iter().enumerate() {
        let t = e.ptr;
        let writes = e.kind == Kind::Node && !looks_only(t) && parameters.contains(&t.root());
        require(!writes, t, "it writes to a parameter, which only the optimiser may do")?;
        let inherited = |s: &TensorPtr| forward.position(*s).is_some_and(|i| depends.get(i) == Some(&true));
        // ggml takes the sources of an `i32` operation for indices, which have no gradient.
        let from = followed(t).filter(inherited).find(|_| t.dtype() != DType::I32);
        let float = from.is_none_or(|from| matches!(from.dtype(), DType::F32 | DType::F16));
        require(float, t, "gradients only pass through f32; it depends on a parameter")?;
        if t.view_src().is_some() && !looks_only(t) {
            match from {
                // C asserts that an in-place operation which depends on a parameter is a copy: others overwrite values
                // from which a gradient is computed.
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

/// Checks that an in-place operation is a copy into a tensor without other uses. No other in-place operation is
/// differentiated by ggml.
fn need_copy(forward: &Entries, t: TensorPtr) -> Result<()> {
    let copies = matches!(Operation::of(t), Some(Operation::Cpy));
    require(copies, t, "an in-place operation has no backward pass; use the one that makes a new tensor")?;
    // The target of the copy, and all tensors of which the target is a view.
    let [_, to, ..] = t.slots();
    let target: Vec<_> = std::iter::successors(to, |&t| first_source(t)).collect();
    let uses = |s: TensorPtr| s.root() == t.root() && looked_at(s) != t;
    let other = |e: TensorPtr| e != t && !target.contains(&e) && e.sources().any(uses);
    let used = forward.iter().any(|e| other(e.ptr));
    require(!used, t, "another operation uses what it overwrites; copy that (`dup`) before")
}

/// Checks that `t` does not overwrite the operands or the result of an earlier operation that has a gradient, because
/// the gradient may be computed from them. C does not check it.
fn need_unused(forward: &Entries, t: TensorPtr, depends: &[bool]) -> Result<()> {
    let overwritten = |e: TensorPtr| e.sources().chain([e]).any(|s| s.root() == t.root());
    let before = forward.iter().zip(depends).filter(|(_, depends)| **depends);
    let needed = before.map(|(e, _)| e.ptr).any(|e| !looks_only(e) && overwritten(e));
    require(!needed, t, "it overwrites what a gradient is computed from; copy that (`dup`) before")
}

/// The tensor behind a chain of plain views.
fn looked_at(t: TensorPtr) -> TensorPtr {
    std::iter::successors(Some(t), |&t| first_source(t)).last().unwrap_or(t)
}

/// The source of a plain view; `None` for other operations.
fn first_source(t: TensorPtr) -> Option<TensorPtr> {
    if looks_only(t) { t.sources().next() } else { None }
}

/// Whether the operation is a plain view of its source.
fn looks_only(t: TensorPtr) -> bool {
    t.is_view_op() && !t.is_leaf()
}

fn require(holds: bool, t: TensorPtr, otherwise: &'static str) -> Result<()> {
    need(holds, otherwise).map_err(|refusal| refusal.of(t, ANY))
}
