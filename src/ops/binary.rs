//! Functions of pairs of elements, the second operand repeated over the first.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// The type of all builders in this file's table: they take two tensors and make one of the first one's shape.
type Builder = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
) -> *mut sys::ggml_tensor;

macro_rules! binary {
    ($($doc:literal, $name:ident = $c:ident, $alias:literal, $inplace:ident = $c_inplace:ident, $alias_inplace:literal;)*) => {
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
                    let call = Call { op: stringify!($name), operands: &[a, b] };
                    call.repeats(b, a)?;
                    self.pair($alias, sys::$c, a, b)
                }

                #[doc = concat!("[`Context::", stringify!($name), "`] in place (`", $alias_inplace, "`).")]
                ///
                /// It writes to `a`, which may be a [`State`](crate::State)'s tensor or a result; what it returns is a view
                /// of `a`. Whatever reads `a` itself, or shares its memory, does not wait for it.
                ///
                /// # Errors
                ///
                #[doc = concat!("As [`Context::", stringify!($name), "`];")]
                /// [`Error::Frozen`](crate::Error::Frozen) where `a` lies in weights,
                /// [`Error::Shape`](crate::Error::Shape) where it lies in an input, holds indices, or shares memory with
                /// `b` that is not the very same.
                #[doc(alias = $alias_inplace)]
                pub fn $inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
                    let call = Call { op: stringify!($inplace), operands: &[a, b] };
                    call.repeats(b, a)?;
                    call.in_place(a, &[b])?;
                    self.pair($alias_inplace, sys::$c_inplace, a, b)
                }
            )*
        }
    };
}

binary! {
    "`a + b`",
        add = ggml_add, "ggml_add",
        add_inplace = ggml_add_inplace, "ggml_add_inplace";
    "`a - b`",
        sub = ggml_sub, "ggml_sub",
        sub_inplace = ggml_sub_inplace, "ggml_sub_inplace";
    "`a * b`, element by element",
        mul = ggml_mul, "ggml_mul",
        mul_inplace = ggml_mul_inplace, "ggml_mul_inplace";
    "`a / b`, element by element",
        div = ggml_div, "ggml_div",
        div_inplace = ggml_div_inplace, "ggml_div_inplace";
}

impl Context {
    /// Calls `f`, whose needs were checked.
    fn pair<'c>(&'c self, c: &'static str, f: Builder, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        self.build(c, &[a, b], |c| {
            // SAFETY: `f` is one of this file's, each after its check: `b` repeats over `a`, or is one number beside planes
            // that follow each other, all that these assert; where the result is a view of `a`, that may be written. The
            // context is live and has room; the operands are live for 'c. The result keeps both as sources.
            unsafe { f(c, a.as_ptr(), b.as_ptr()) }
        })
    }

    /// `a + b` in another type than that of `a` (`ggml_add_cast`), which is `f16`, `bf16` or quantised. `b` is repeated
    /// over `a`, but for its rows.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for other types of `a`; [`Error::Shape`](crate::Error::Shape) unless `b` has
    /// the row length of `a`, all its other dimensions divide those of `a`, and the rows are whole blocks of `dtype`.
    #[doc(alias = "ggml_add_cast")]
    pub fn add_cast<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, dtype: DType) -> Result<Tensor<'c>> {
        let call = Call { op: "add_cast", operands: &[a, b] };
        call.repeats(b, a)?;
        let ([a0, ..], [b0, ..]) = (a.ne(), b.ne());
        call.shape(a0 == b0, "rows must be of one length")?;
        let known = a.dtype().is_quantized() || matches!(a.dtype(), DType::F16 | DType::BF16);
        call.dtype(known, "the first operand must be f16, bf16 or quantised")?;
        call.shape(a.shape().bytes(dtype).is_ok(), "rows must be whole blocks of the new type, of a size that exists")?;
        self.build("ggml_add_cast", &[a, b], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, all that C
            // asserts, and more: the result's rows are whole blocks. The result keeps both as sources.
            unsafe { sys::ggml_add_cast(c, a.as_ptr(), b.as_ptr(), dtype.raw()) }
        })
    }

    /// `a + b` for one number `b` (`ggml_add1`). ggml prefers [`Context::add`].
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `b` has one element, and the elements of each row of `a` lie side by
    /// side and its planes without gaps between them.
    #[doc(alias = "ggml_add1")]
    pub fn add1<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        one_number(Call { op: "add1", operands: &[a, b] }, a, b)?;
        self.pair("ggml_add1", sys::ggml_add1, a, b)
    }

    /// [`Context::add1`] in place (`ggml_add1_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::add1`] and [`Context::add_inplace`].
    #[doc(alias = "ggml_add1_inplace")]
    pub fn add1_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "add1_inplace", operands: &[a, b] };
        one_number(call, a, b)?;
        call.in_place(a, &[b])?;
        self.pair("ggml_add1_inplace", sys::ggml_add1_inplace, a, b)
    }
}

/// What `ggml_add1` asserts; it looks at the strides of dimensions of 1 too.
fn one_number(call: Call<'_, '_>, a: Tensor<'_>, b: Tensor<'_>) -> Result<()> {
    call.shape(b.ne() == [1; 4], "the second operand must be one number")?;
    call.shape(a.layout().has_even_rows(), "rows must have no gaps, and planes none between them; use `cont`")
}
