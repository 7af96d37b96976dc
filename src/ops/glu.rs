//! Gated units: one half of the features, through a function, times the other.

use ggml_sys as sys;

use super::check::{Call, is_float};
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Tensor;

/// The function that the gate goes through (`ggml_glu_op`).
#[doc(alias = "ggml_glu_op")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Glu {
    /// [`Context::relu`].
    Reglu,
    /// [`Context::gelu`].
    Geglu,
    /// [`Context::silu`].
    Swiglu,
    /// [`Context::gelu_erf`].
    GegluErf,
    /// [`Context::gelu_quick`].
    GegluQuick,
}

impl Glu {
    fn raw(self) -> sys::ggml_glu_op {
        match self {
            Self::Reglu => sys::GGML_GLU_OP_REGLU,
            Self::Geglu => sys::GGML_GLU_OP_GEGLU,
            Self::Swiglu => sys::GGML_GLU_OP_SWIGLU,
            Self::GegluErf => sys::GGML_GLU_OP_GEGLU_ERF,
            Self::GegluQuick => sys::GGML_GLU_OP_GEGLU_QUICK,
        }
    }
}

impl Context {
    /// Splits each row in two halves and multiplies the function of the first by the second, or with `swapped` the
    /// function of the second by the first (`ggml_glu`): the first dimension is halved.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, `f16` or `bf16`; [`Error::Shape`](crate::Error::Shape)
    /// unless its rows are of even length and it is contiguous above its first dimension.
    #[doc(alias = "ggml_glu")]
    pub fn glu<'c>(&'c self, a: Tensor<'c>, op: Glu, swapped: bool) -> Result<Tensor<'c>> {
        let call = Call { op: "glu", operands: &[a] };
        operand(call, a)?;
        let [n, ..] = a.ne();
        call.shape(n % 2 == 0, "rows must be of even length")?;
        self.build("ggml_glu", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c and laid out as C asserts. The result keeps it as
            // source.
            unsafe { sys::ggml_glu(c, a.as_ptr(), op.raw(), swapped) }
        })
    }

    /// The function of `a`, times `b` (`ggml_glu_split`).
    ///
    /// # Errors
    ///
    /// As [`Context::glu`], for both; [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless
    /// both have one shape and type.
    #[doc(alias = "ggml_glu_split")]
    pub fn glu_split<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, op: Glu) -> Result<Tensor<'c>> {
        let call = Call { op: "glu_split", operands: &[a, b] };
        operand(call, a)?;
        operand(call, b)?;
        call.shape(a.shape() == b.shape(), "both operands must have one shape")?;
        call.dtype(a.dtype() == b.dtype(), "both operands must have one type")?;
        self.build("ggml_glu_split", &[a, b], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, which are
            // all that C asserts. The result keeps both as sources.
            unsafe { sys::ggml_glu_split(c, a.as_ptr(), b.as_ptr(), op.raw()) }
        })
    }
}

fn operand(call: Call<'_, '_>, a: Tensor<'_>) -> Result<()> {
    call.dtype(is_float(a.dtype()), "the operand must be f32, f16 or bf16")?;
    call.shape(a.ptr().is_contiguous_1(), "the operand must be contiguous above its first dimension; use `cont`")
}
