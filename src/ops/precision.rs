//! The precision of an operation.

use ggml_sys as sys;

/// The least precision that a device must use (`ggml_prec`).
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
