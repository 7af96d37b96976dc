//! Judges an operation that a client sent as if a [`Context`] had made it.
//!
//! The operation is built again by this crate's own builder, over tensors at the places that the client named. What the
//! builder would refuse is refused. What it makes must be what the client described: the operation with its parameters,
//! its sources, and the type, shape and strides of its result. A client may place a result over an operand, as ggml's
//! allocator does, only where ggml's allocator or a builder would.

use super::end::{End, Outcome, need};
use super::fields::SLOTS;
use crate::context::Context;
use crate::dtype::DType;
use crate::header::TensorPtr;
use crate::op::{OpParams, Operation as Op};
use crate::rules::{Overwrites, overwrites};
use crate::tensor::Tensor;

/// An operation as the client described it. All tensors are places without an operation.
pub(super) struct Claim<'c> {
    pub(super) params: OpParams,
    pub(super) result: Tensor<'c>,
    /// The sources by slot. The second source of a cast is its result.
    pub(super) sources: [Option<Tensor<'c>>; SLOTS],
}

const NO_BUILDER: &str = "no builder makes such an operation";
/// The rounds of `dsv4_hc_comb` at most; models use some twenty.
const MAX_ROUNDS: i32 = 1000;

impl<'c> Claim<'c> {
    /// Checks the claim. Tensors that must be built for that are made in `ctx`.
    pub(super) fn judge(&self, ctx: &'c Context) -> Outcome {
        let op = self.params.decode().ok_or_else(|| End::refused("an operation or its parameters are unknown"))?;
        // No operation can be ended while it runs.
        let is_short = !matches!(op, Op::Dsv4HcComb { n_iter, .. } if n_iter > MAX_ROUNDS);
        need(is_short, "an operation has more rounds than the server allows")?;
        let target = self.target(op);
        self.shares_memory_only_as_allowed(op, target)?;
        if matches!(op, Op::OptStepAdamw | Op::OptStepSgd) {
            return self.is_step(op);
        }
        let built = self.build(ctx, op, target)?;
        self.compare(op, target, built.ptr())
    }

    fn source(&self, slot: usize) -> Outcome<Tensor<'c>> {
        let source = self.sources.get(slot).copied().flatten();
        source.ok_or_else(|| End::refused(format!("an operation lacks the operand in slot {slot}")))
    }

    /// The slot of the operand that the operation writes to by definition, so that its result lies there.
    fn target(&self, op: Op) -> Option<usize> {
        let [first, _, _, _, fifth, ..] = self.params.params();
        match op {
            Op::SetRows => Some(2),
            Op::Cpy => Some(1),
            Op::Acc(_) | Op::Set(_) if fifth != 0 => Some(0),
            Op::AddRelPos if first != 0 => Some(0),
            Op::OptStepAdamw | Op::OptStepSgd => Some(0),
            _ => None,
        }
    }

    /// Whether the operand has the memory and the layout of the result.
    fn is_result(&self, operand: Tensor<'c>) -> bool {
        let place = |t: TensorPtr| (t.root(), t.view_offs(), t.layout());
        place(operand.ptr()) == place(self.result.ptr())
    }

    fn shares_memory_only_as_allowed(&self, op: Op, target: Option<usize>) -> Outcome {
        for (slot, operand) in self.sources.iter().enumerate().filter_map(|(slot, t)| Some((slot, (*t)?))) {
            if target == Some(slot) {
                need(self.is_result(operand), "an operation's result is not the operand that it writes to")?;
            } else if self.result.ptr().overlaps(operand.ptr()) {
                let may = match overwrites(op) {
                    Overwrites::No => false,
                    Overwrites::First => slot == 0,
                    // Rows of the second operand of `add_id` are read for several rows of the result.
                    Overwrites::Any | Overwrites::AnyOrFirst => !(slot == 1 && matches!(op, Op::AddId)),
                };
                need(
                    may && self.is_result(operand) && target.is_none(),
                    "an operation writes to memory that it reads",
                )?;
            }
        }
        target.map_or(Ok(()), |slot| self.source(slot).map(drop))
    }

    fn build(&self, ctx: &'c Context, op: Op, target: Option<usize>) -> Outcome<Tensor<'c>> {
        let source = |slot| self.source(slot);
        Ok(match (op, target) {
            (Op::Custom | Op::None | Op::Reshape | Op::View | Op::Permute { .. } | Op::Transpose, _) => {
                return Err(End::refused(NO_BUILDER));
            }
            (Op::Cpy, _) => ctx.cpy(source(0)?, source(1)?)?,
            (Op::SetRows, _) => ctx.set_rows(source(2)?, source(0)?, source(1)?)?,
            (Op::Acc(part), Some(_)) => ctx.acc_inplace(source(0)?, source(1)?, part)?,
            (Op::Set(part), Some(_)) => ctx.set_inplace(source(0)?, source(1)?, part)?,
            (Op::AddRelPos, Some(_)) => ctx.add_rel_pos_inplace(source(0)?, source(1)?, source(2)?)?,
            _ => {
                let result = self.result.layout();
                let built = op.build(ctx, &self.sources, result.dtype, result.ne);
                built.map_err(|failure| End::refused(failure.to_string()))?
            }
        })
    }

    fn compare(&self, op: Op, target: Option<usize>, built: TensorPtr) -> Outcome {
        // Its parameters are logarithms of what the client passed, so they may differ in their last bits.
        let same_params = built.op_params() == self.params.params() || matches!(op, Op::Xielu { .. });
        need(built.op() == self.params.op() && same_params, "no builder makes an operation with these parameters")?;
        for (slot, (built, sent)) in built.slots().into_iter().zip(self.sources).enumerate() {
            let sent = sent.map(Tensor::ptr);
            let between = || inserts(op, slot) && built.and_then(|t| t.source(0)) == sent;
            need(built == sent || between(), "no builder makes an operation with these operands")?;
        }
        let (result, made) = (self.result.layout(), built.layout());
        let in_place = || {
            let over = self.sources.first().copied().flatten().is_some_and(|t| self.is_result(t));
            let builder = matches!(overwrites(op), Overwrites::First | Overwrites::AnyOrFirst);
            over && target.is_none() && builder && (result.dtype, result.ne) == (made.dtype, made.ne)
        };
        need(result == made || in_place(), "an operation's result has another type, shape or strides than it makes")
    }

    /// Checks an optimiser's step, for which there is no builder by itself: it is made by `opt/`.
    fn is_step(&self, op: Op) -> Outcome {
        let (n, len) = if matches!(op, Op::OptStepAdamw) { (5, 7) } else { (3, 2) };
        let given = self.sources.iter().flatten().count();
        need(given == n && self.params.params() == [0; 16], NO_BUILDER)?;
        for slot in 0..n {
            let (t, weights) = (self.source(slot)?, self.source(0)?);
            let fits = if slot + 1 == n { t.ne() == [len, 1, 1, 1] } else { t.ne() == weights.ne() };
            let plain = t.dtype() == DType::F32 && t.layout().is_packed();
            need(fits && plain, "an optimiser's step needs contiguous f32 operands of one shape, and its settings")?;
            let mut others = (0..slot).filter_map(|other| self.sources.get(other).copied().flatten());
            let shared = others.any(|other| other.ptr().overlaps(t.ptr()));
            need(!shared, "the operands of an optimiser's step share memory")?;
        }
        Ok(())
    }
}

pub(super) fn is_sort(op: Op) -> bool {
    matches!(op, Op::Argsort(_) | Op::TopK { .. })
}

/// Whether the builder puts a clamp or a view before this operand. A client need not: what it sorts is checked for NaN, and
/// the second operand of `add_id` for memory that it shares with the result.
fn inserts(op: Op, slot: usize) -> bool {
    slot == 0 && is_sort(op) || slot == 1 && matches!(op, Op::AddId)
}
