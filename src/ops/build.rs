//! Macros for calls of C's builders.

use crate::ffi::CTensor;
use crate::tensor::Tensor;

/// Adds an operation to a context by a builder of C: `build!(self, sys::ggml_scale(a; factor))` is a call of
/// `ggml_scale(context, a, factor)`, with the operands before the semicolon and the parameters after it. It returns what
/// [`Context::build`](crate::context::Context::build) does.
///
/// - Where operands may be missing, a list of those that are there comes first: `build!(self, &list, sys::…)`.
/// - `build!(self, sys::…, fill)` makes the header in Rust ([`Context::make`](crate::context::Context::make)).
///
/// # Safety
///
/// A call needs no `unsafe`, because only this folder can make one, and only in a method that has checked before all
/// that C asserts, or leaves to its caller: the types, shapes and strides of operands, the values of parameters, and
/// whether an operand may be written to. A new builder is read with C's code beside it (CONTRIBUTING.md, "How to add an
/// operation").
macro_rules! build {
    ($ctx:ident, sys::$f:ident($($operand:ident),* $(; $($parameter:expr),*)?) $(, $fill:expr)?) => {
        $crate::ops::build::build!(
            @($ctx, &[$($operand),*], $f $(, $fill)?) [$($operand),*] [] [$($($parameter,)*)?]
        )
    };
    ($ctx:ident, $operands:expr, sys::$f:ident($($operand:ident),* $(; $($parameter:expr),*)?)) => {
        $crate::ops::build::build!(@($ctx, $operands, $f) [$($operand),*] [] [$($($parameter,)*)?])
    };
    // Parameters are evaluated before C is called, so outside the macro's unsafe block.
    (@$call:tt $operands:tt [$($done:ident)*] [$parameter:expr, $($rest:tt)*]) => {{
        let parameter = $crate::ops::build::plain($parameter);
        $crate::ops::build::build!(@$call $operands [$($done)* parameter] [$($rest)*])
    }};
    (@($ctx:ident, $list:expr, $f:ident) $operands:tt $parameters:tt []) => {
        $ctx.build(stringify!($f), $list, $crate::ops::build::build!(@@ $f $operands $parameters))
    };
    (@($ctx:ident, $list:expr, $f:ident, $fill:expr) $operands:tt $parameters:tt []) => {
        $ctx.make(stringify!($f), $list, $fill, $crate::ops::build::build!(@@ $f $operands $parameters))
    };
    (@(amend, $f:ident) [$($operand:ident),*] [$($parameter:ident)*] []) => {
        $crate::guard::call(stringify!($f), || {
            // SAFETY: the operands are handles, so they live during the call, and parameters are plain numbers. The
            // first operand was made just now, and is not shared. The method that calls the macro has checked the rest
            // (the macro's `# Safety`).
            unsafe { $crate::sys::$f($($crate::ops::build::BuildOperand::raw($operand)),* $(, $parameter)*) }
        })
    };
    (@@ $f:ident [$($operand:ident),*] [$($parameter:ident)*]) => {
        |context| {
            // SAFETY: `Context::build` and `Context::make` give a live C context with room for what a builder makes
            // (H6). Operands are handles, so they live for 'c, as long as the context; a result keeps them (`src`).
            // Parameters are plain numbers. The method that calls the macro has checked the rest (the macro's `#
            // Safety`).
            unsafe { $crate::sys::$f(context $(, $crate::ops::build::BuildOperand::raw($operand))* $(, $parameter)*) }
        }
    };
}
pub(crate) use build;

/// Changes an operation that was made just now, by a function of C: `amend!(sys::ggml_rope_set_offset(t; offset))`. The
/// `# Safety` of [`build!`] applies.
macro_rules! amend {
    (sys::$f:ident($($operand:ident),* $(; $($parameter:expr),*)?)) => {
        $crate::ops::build::build!(@(amend, $f) [$($operand),*] [] [$($($parameter,)*)?])
    };
}
pub(crate) use amend;

/// An operand of a builder, converted to a pointer for C.
pub(super) trait BuildOperand {
    fn raw(self) -> CTensor;
}

impl BuildOperand for Tensor<'_> {
    fn raw(self) -> CTensor {
        self.as_ptr()
    }
}

/// An optional operand: C takes NULL for a missing one.
impl BuildOperand for Option<Tensor<'_>> {
    fn raw(self) -> CTensor {
        self.map_or(std::ptr::null_mut(), Tensor::as_ptr)
    }
}

/// A type of parameters, none of which is a pointer.
pub(super) trait Plain {}

macro_rules! plain {
    ($($type:ty)*) => { $(impl Plain for $type {})* };
}
plain!(bool f32 i32 i64 u32 usize);

pub(super) fn plain<T: Plain>(parameter: T) -> T {
    parameter
}
