//! Which operations may run, by backend. All tables of them are in this folder.

pub(crate) mod cpu;
pub(crate) mod indices;
pub(crate) mod meta;
pub(crate) mod run;
pub(crate) mod training;

mod blas;
mod vulkan;

use crate::error::Error;
use crate::header::TensorPtr;

/// Why an operation can't run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) &'static str);

/// A table's answer for an operation.
pub(crate) type Verdict<T = ()> = Result<T, Refusal>;

/// Refuses with the reason `otherwise`, unless the condition holds.
#[inline]
pub(crate) fn need(holds: bool, otherwise: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(Refusal(otherwise)) }
}

impl Refusal {
    /// The error for operation `t` on `device`, which names one device or several.
    #[cold]
    pub(crate) fn of(self, t: TensorPtr, device: impl Into<Box<str>>) -> Error {
        Error::unsupported(t.op_name(), t.sources().chain([t]).map(TensorPtr::info), device, self.0)
    }
}
