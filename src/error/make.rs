//! Constructors of errors.

use std::borrow::Cow;

use super::{Error, TensorInfo};

impl Error {
    /// Makes the error for a failed allocation in this process, whose size depends on what the user created.
    #[cold]
    pub(crate) fn no_memory(what: &'static str) -> Self {
        Self::OutOfMemory { what: what.into(), bytes: None, log: Box::default() }
    }

    pub(crate) fn param(
        call: &'static str,
        name: &'static str,
        value: impl Into<Box<str>>,
        expected: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Param { call, name, value: value.into(), expected: expected.into() }
    }

    /// Makes an [`Error::Shape`] about these operands.
    pub(crate) fn shape(
        call: &'static str,
        operands: impl IntoIterator<Item = TensorInfo>,
        expected: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Shape { call, operands: operands.into_iter().collect(), expected: expected.into() }
    }

    /// Makes an [`Error::Unsupported`]; `operands` may be empty.
    pub(crate) fn unsupported(
        call: impl Into<Box<str>>,
        operands: impl IntoIterator<Item = TensorInfo>,
        device: impl Into<Box<str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let operands = operands.into_iter().collect();
        Self::Unsupported { call: call.into(), operands, device: device.into(), reason: reason.into() }
    }
}
