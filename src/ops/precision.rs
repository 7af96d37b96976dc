//! The precision of an operation.

use ggml_sys as sys;

/// The least precision that a device must use (`ggml_prec`).
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::{MulMat, Prec};
/// # let ctx = Context::new();
/// let [a, b] = [ctx.input("a", DType::F16, [64, 8])?, ctx.input("b", DType::F32, [64, 2])?];
/// let sums = MulMat::new().with_acc(Prec::F32); // for a model whose sums exceed 65504
/// assert_eq!(ctx.mul_mat_ext(a, b, sums)?.ne(), [8, 2, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_prec")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prec {
    /// 32-bit floats.
    F32,
    /// 16-bit brain floats.
    BF16,
    /// 16-bit IEEE floats.
    F16,
    /// Blocks of 8 bits.
    Q8,
    /// Blocks of 4 bits.
    Q4,
}

impl Prec {
    pub(crate) const fn raw(self) -> sys::ggml_prec {
        match self {
            Self::F32 => sys::GGML_PREC_F32,
            Self::BF16 => sys::GGML_PREC_BF16,
            Self::F16 => sys::GGML_PREC_F16,
            Self::Q8 => sys::GGML_PREC_Q8,
            Self::Q4 => sys::GGML_PREC_Q4,
        }
    }
}
