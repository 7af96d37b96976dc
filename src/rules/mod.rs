//! Which operations may run, by backend. All tables of them are in this folder. `run.rs` asks them when a graph is allocated;
//! what every device needs was checked by the builder (`ops/`).

pub(crate) mod cpu;
pub(crate) mod indices;
pub(crate) mod meta;
pub(crate) mod run;
pub(crate) mod training;

mod blas;
mod cuda;
mod supports;
mod table;
mod vulkan;

use crate::error::Error;
use crate::header::TensorPtr;
use crate::op::Operation;

#[cfg(feature = "rpc")]
pub(crate) use table::Overwrites;

/// The operation in a header, or the refusal of an unknown one. Every table asks for this first.
pub(crate) fn operation(t: TensorPtr) -> Verdict<Operation> {
    Operation::of(t).ok_or(Refusal("this crate knows no such operation, or not with these parameters"))
}

/// Over which operand the result of an operation may lie.
#[cfg(feature = "rpc")]
pub(crate) fn overwrites(op: Operation) -> Overwrites {
    table::row(op).overwrites
}

/// Why an operation can't run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) &'static str);

/// The answer of a rule table for an operation.
pub(crate) type Verdict<T = ()> = Result<T, Refusal>;

/// Refuses with the reason `otherwise`, unless the condition holds.
#[inline]
pub(crate) fn need(holds: bool, otherwise: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(Refusal(otherwise)) }
}

impl Refusal {
    /// The error for operation `t` on `device`, which may name several devices.
    #[cold]
    pub(crate) fn of(self, t: TensorPtr, device: impl Into<Box<str>>) -> Error {
        Error::unsupported(t.op_name(), t.sources().chain([t]).map(TensorPtr::info), device, self.0)
    }
}
