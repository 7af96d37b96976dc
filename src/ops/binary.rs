//! Functions of pairs of elements, the second operand repeated over the first.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Tensor;

/// The type of all builders in this file's table: they take two tensors and make one of the first one's shape.
type Builder = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
) -> *mut sys::ggml_tensor;

macro_rules! binary {
    ($($name:ident = $c:ident, $alias:literal, $doc:literal;)*) => {
        impl Context {
            $(
                #[doc = concat!($doc, " (`", $alias, "`).")]
                ///
                /// `b` is repeated over `a`; the result has the shape and type of `a`.
                ///
                /// # Errors
                ///
                /// [`Error::Shape`](crate::Error::Shape) unless every dimension of `b` divides that of `a`.
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
                    self.binary(stringify!($name), $alias, sys::$c, a, b)
                }
            )*
        }
    };
}

binary! {
    add = ggml_add, "ggml_add", "`a + b`";
    sub = ggml_sub, "ggml_sub", "`a - b`";
    mul = ggml_mul, "ggml_mul", "`a * b`, element by element";
    div = ggml_div, "ggml_div", "`a / b`, element by element";
}

impl Context {
    fn binary<'c>(
        &'c self,
        op: &'static str,
        call: &'static str,
        f: Builder,
        a: Tensor<'c>,
        b: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        Call { op, operands: &[a, b] }.repeats(b, a)?;
        self.build(call, &[a, b], |c| {
            // SAFETY: `f` is one of the table above. The context is live and has room; the operands are live for 'c, and
            // `b` repeats over `a`, all that these assert. The result keeps both as sources.
            unsafe { f(c, a.as_ptr(), b.as_ptr()) }
        })
    }
}
