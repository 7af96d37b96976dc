//! Element types, and the Rust types that hold them.

use std::fmt;
use std::str::FromStr;

use ggml_sys as sys;

use crate::error::Error;

macro_rules! dtypes {
    ($($(#[$of:meta])* $variant:ident = $raw:ident, $name:literal, $block:literal, $size:literal, $doc:literal;)*) => {
        /// The type of a tensor's elements (`ggml_type`).
        ///
        /// ```
        /// # use ggml::prelude::*;
        /// assert_eq!((DType::Q4_0.block_size(), DType::Q4_0.type_size()), (32, 18)); // 4.5 bits for a number
        /// assert_eq!(DType::Q4_0.row_size(4096), Some(2304));
        /// assert_eq!("q4_K".parse::<DType>()?, DType::Q4_K);
        /// # Ok::<(), ggml::Error>(())
        /// ```
        #[doc(alias = "ggml_type")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(non_camel_case_types, reason = "the names are ggml's")]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$of])* #[doc = $doc] $variant,)*
        }

        impl DType {
            /// All types.
            pub const ALL: &'static [Self] = &[$($(#[$of])* Self::$variant,)*];

            /// ggml's constant for the type.
            pub(crate) const fn raw(self) -> sys::ggml_type {
                match self {
                    $($(#[$of])* Self::$variant => sys::$raw,)*
                }
            }

            /// The type with ggml's constant `raw`, if it exists and ggml hasn't removed it.
            pub(crate) const fn from_raw(raw: sys::ggml_type) -> Option<Self> {
                match raw {
                    $($(#[$of])* sys::$raw => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// ggml's name of the type, such as `f32` or `q4_K` (`ggml_type_name`).
            #[doc(alias = "ggml_type_name")]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[$of])* Self::$variant => $name,)*
                }
            }

            /// Elements and bytes per block.
            const fn block(self) -> (i64, usize) {
                match self {
                    $($(#[$of])* Self::$variant => ($block, $size),)*
                }
            }
        }
    };
}

dtypes! {
    F32 = GGML_TYPE_F32, "f32", 1, 4, "32-bit float";
    F16 = GGML_TYPE_F16, "f16", 1, 2, "16-bit IEEE float";
    BF16 = GGML_TYPE_BF16, "bf16", 1, 2, "16-bit brain float";
    F64 = GGML_TYPE_F64, "f64", 1, 8, "64-bit float";
    I8 = GGML_TYPE_I8, "i8", 1, 1, "8-bit integer";
    I16 = GGML_TYPE_I16, "i16", 1, 2, "16-bit integer";
    I32 = GGML_TYPE_I32, "i32", 1, 4, "32-bit integer";
    I64 = GGML_TYPE_I64, "i64", 1, 8, "64-bit integer";
    Q1_0 = GGML_TYPE_Q1_0, "q1_0", 128, 18, "1-bit blocks";
    Q2_0 = GGML_TYPE_Q2_0, "q2_0", 64, 18, "2-bit blocks";
    Q4_0 = GGML_TYPE_Q4_0, "q4_0", 32, 18, "4-bit blocks of 32, scale";
    Q4_1 = GGML_TYPE_Q4_1, "q4_1", 32, 20, "4-bit blocks of 32, scale and minimum";
    Q5_0 = GGML_TYPE_Q5_0, "q5_0", 32, 22, "5-bit blocks of 32, scale";
    Q5_1 = GGML_TYPE_Q5_1, "q5_1", 32, 24, "5-bit blocks of 32, scale and minimum";
    Q8_0 = GGML_TYPE_Q8_0, "q8_0", 32, 34, "8-bit blocks of 32, scale";
    Q8_1 = GGML_TYPE_Q8_1, "q8_1", 32, 36, "8-bit blocks of 32, scale and sum: an intermediate of kernels";
    Q2_K = GGML_TYPE_Q2_K, "q2_K", 256, 84, "2-bit super-blocks of 256";
    Q3_K = GGML_TYPE_Q3_K, "q3_K", 256, 110, "3-bit super-blocks of 256";
    Q4_K = GGML_TYPE_Q4_K, "q4_K", 256, 144, "4-bit super-blocks of 256";
    Q5_K = GGML_TYPE_Q5_K, "q5_K", 256, 176, "5-bit super-blocks of 256";
    Q6_K = GGML_TYPE_Q6_K, "q6_K", 256, 210, "6-bit super-blocks of 256";
    Q8_K = GGML_TYPE_Q8_K, "q8_K", 256, 292, "8-bit super-blocks of 256: an intermediate of kernels";
    IQ1_S = GGML_TYPE_IQ1_S, "iq1_s", 256, 50, "1.6-bit codebook blocks of 256";
    IQ1_M = GGML_TYPE_IQ1_M, "iq1_m", 256, 56, "1.8-bit codebook blocks of 256";
    IQ2_XXS = GGML_TYPE_IQ2_XXS, "iq2_xxs", 256, 66, "2.1-bit codebook blocks of 256";
    IQ2_XS = GGML_TYPE_IQ2_XS, "iq2_xs", 256, 74, "2.3-bit codebook blocks of 256";
    IQ2_S = GGML_TYPE_IQ2_S, "iq2_s", 256, 82, "2.5-bit codebook blocks of 256";
    IQ3_XXS = GGML_TYPE_IQ3_XXS, "iq3_xxs", 256, 98, "3.1-bit codebook blocks of 256";
    IQ3_S = GGML_TYPE_IQ3_S, "iq3_s", 256, 110, "3.4-bit codebook blocks of 256";
    IQ4_NL = GGML_TYPE_IQ4_NL, "iq4_nl", 32, 18, "4-bit non-linear blocks of 32";
    IQ4_XS = GGML_TYPE_IQ4_XS, "iq4_xs", 256, 136, "4-bit non-linear super-blocks of 256";
    TQ1_0 = GGML_TYPE_TQ1_0, "tq1_0", 256, 54, "ternary, 1.7 bits";
    TQ2_0 = GGML_TYPE_TQ2_0, "tq2_0", 256, 66, "ternary, 2.1 bits";
    MXFP4 = GGML_TYPE_MXFP4, "mxfp4", 32, 17, "4-bit float blocks of 32 (OCP MX)";
    NVFP4 = GGML_TYPE_NVFP4, "nvfp4", 64, 36, "4-bit float blocks with E4M3 scales";
    #[cfg(ggml_0_28)]
    F8_E4M3 = GGML_TYPE_F8_E4M3, "f8_e4m3", 1, 1, "8-bit float with a 4-bit exponent (OCP FP8), up to 448; since ggml 0.28";
}

impl DType {
    /// Elements per block: 1 for plain types (`ggml_blck_size`).
    #[doc(alias = "ggml_blck_size")]
    #[inline]
    pub fn block_size(self) -> i64 {
        self.block().0
    }

    /// Bytes per block (`ggml_type_size`).
    #[doc(alias = "ggml_type_size")]
    #[inline]
    pub fn type_size(self) -> usize {
        self.block().1
    }

    /// Whether the type stores blocks of quantised values (`ggml_is_quantized`).
    #[doc(alias = "ggml_is_quantized")]
    pub fn is_quantized(self) -> bool {
        self.block().0 > 1
    }

    /// Whether ggml can convert the type's blocks to and from floats. For others it has no functions, and would call
    /// NULL.
    pub(crate) fn has_floats_in_blocks(self) -> bool {
        self.is_quantized() && !matches!(self, Self::Q8_1 | Self::Q8_K)
    }

    /// Whether it is the 8-bit float of ggml 0.28, which few kernels take. ggml doesn't call it quantised.
    pub(crate) fn is_f8(self) -> bool {
        self.block() == (1, 1) && self != Self::I8
    }

    /// Whether it is `f32`, `f16` or `bf16`.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// The type of most tensors in a file with this `general.file_type`, or `None` if ggml doesn't know it or assigns
    /// it no type (`ggml_ftype_to_ggml_type`).
    ///
    /// ```
    /// use ggml::DType;
    /// assert_eq!(DType::from_ftype(7), Some(DType::Q8_0));
    /// assert_eq!(DType::from_ftype(4), None);
    /// ```
    #[doc(alias = "ggml_ftype_to_ggml_type")]
    pub fn from_ftype(ftype: i32) -> Option<Self> {
        FTYPES.iter().find(|(known, _)| *known == ftype).map(|(_, dtype)| *dtype)
    }

    /// The bytes of a row of `elements`, or `None` if they are no whole number of blocks or the size overflows
    /// (`ggml_row_size`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// assert_eq!(DType::F16.row_size(100), Some(200));
    /// assert_eq!(DType::Q8_0.row_size(100), None); // no whole number of blocks of 32
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_row_size")]
    #[inline]
    pub fn row_size(self, elements: i64) -> Option<usize> {
        let block = self.block_size();
        if block == 1 {
            return usize::try_from(elements).ok()?.checked_mul(self.type_size());
        }
        if elements < 0 || elements % block != 0 {
            return None;
        }
        usize::try_from(elements / block).ok()?.checked_mul(self.type_size())
    }
}

/// The file types with an element type. A table of our own, because C's function aborts for others.
const FTYPES: &[(sys::ggml_ftype, DType)] = &[
    (sys::GGML_FTYPE_ALL_F32, DType::F32),
    (sys::GGML_FTYPE_MOSTLY_F16, DType::F16),
    (sys::GGML_FTYPE_MOSTLY_BF16, DType::BF16),
    (sys::GGML_FTYPE_MOSTLY_Q4_0, DType::Q4_0),
    (sys::GGML_FTYPE_MOSTLY_Q4_1, DType::Q4_1),
    (sys::GGML_FTYPE_MOSTLY_Q1_0, DType::Q1_0),
    (sys::GGML_FTYPE_MOSTLY_Q2_0, DType::Q2_0),
    (sys::GGML_FTYPE_MOSTLY_Q5_0, DType::Q5_0),
    (sys::GGML_FTYPE_MOSTLY_Q5_1, DType::Q5_1),
    (sys::GGML_FTYPE_MOSTLY_Q8_0, DType::Q8_0),
    (sys::GGML_FTYPE_MOSTLY_MXFP4, DType::MXFP4),
    (sys::GGML_FTYPE_MOSTLY_NVFP4, DType::NVFP4),
    (sys::GGML_FTYPE_MOSTLY_Q2_K, DType::Q2_K),
    (sys::GGML_FTYPE_MOSTLY_Q3_K, DType::Q3_K),
    (sys::GGML_FTYPE_MOSTLY_Q4_K, DType::Q4_K),
    (sys::GGML_FTYPE_MOSTLY_Q5_K, DType::Q5_K),
    (sys::GGML_FTYPE_MOSTLY_Q6_K, DType::Q6_K),
    (sys::GGML_FTYPE_MOSTLY_IQ2_XXS, DType::IQ2_XXS),
    (sys::GGML_FTYPE_MOSTLY_IQ2_XS, DType::IQ2_XS),
    (sys::GGML_FTYPE_MOSTLY_IQ3_XXS, DType::IQ3_XXS),
    (sys::GGML_FTYPE_MOSTLY_IQ1_S, DType::IQ1_S),
    (sys::GGML_FTYPE_MOSTLY_IQ1_M, DType::IQ1_M),
    (sys::GGML_FTYPE_MOSTLY_IQ4_NL, DType::IQ4_NL),
    (sys::GGML_FTYPE_MOSTLY_IQ4_XS, DType::IQ4_XS),
    (sys::GGML_FTYPE_MOSTLY_IQ3_S, DType::IQ3_S),
    (sys::GGML_FTYPE_MOSTLY_IQ2_S, DType::IQ2_S),
    #[cfg(ggml_0_28)]
    (sys::GGML_FTYPE_MOSTLY_F8_E4M3, DType::F8_E4M3),
];

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses ggml's name of a type, ignoring case.
    fn from_str(s: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(s)).ok_or_else(|| Error::NoSuch {
            what: "element type",
            name: s.into(),
            available: Self::ALL.iter().map(|t| t.name().into()).collect(),
        })
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals the trait")]
    pub trait Sealed {}
}

/// A Rust type of tensor elements. Quantised types have none; they are transferred as bytes.
///
/// ```
/// # use ggml::prelude::*;
/// /// Any of ggml's plain types.
/// fn describe<T: Element>() -> String {
///     format!("{} is {}", T::NAME, T::DTYPE)
/// }
/// assert_eq!(describe::<half::f16>(), "f16 is f16");
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The corresponding element type.
    const DTYPE: DType;
    /// Its name in error messages.
    const NAME: &'static str;
}

macro_rules! elements {
    ($($t:ty => $variant:ident, $name:literal;)*) => {
        $(
            impl sealed::Sealed for $t {}
            impl Element for $t {
                const DTYPE: DType = DType::$variant;
                const NAME: &'static str = $name;
            }
        )*
    };
}

elements! {
    f32 => F32, "f32";
    f64 => F64, "f64";
    half::f16 => F16, "f16";
    half::bf16 => BF16, "bf16";
    i8 => I8, "i8";
    i16 => I16, "i16";
    i32 => I32, "i32";
    i64 => I64, "i64";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of ggml's constants is one of our types with the same name, or that of a removed type.
    #[test]
    fn dtype_equals_ggml_types() {
        let count = sys::GGML_TYPE_COUNT;
        let mut found = 0;
        for raw in 0..count {
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below that.
            let size = unsafe { sys::ggml_type_size(raw) };
            let Some(t) = DType::from_raw(raw) else {
                assert_eq!(size, 0, "ggml has a type {raw} that is missing here");
                continue;
            };
            found += 1;
            assert_eq!(t.raw(), raw);
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below that.
            let name = unsafe { sys::ggml_type_name(raw) };
            // SAFETY: a NUL-terminated constant.
            assert_eq!(unsafe { crate::ffi::string(name) }, t.name());
            assert_eq!(t.name().parse::<DType>().unwrap(), t);
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below that.
            let block = unsafe { sys::ggml_blck_size(raw) };
            assert_eq!((t.block_size(), t.type_size()), (block, size), "{t}");
            assert!(block > 0 && size > 0, "{t}");
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below that.
            assert_eq!(t.is_quantized(), unsafe { sys::ggml_is_quantized(raw) }, "{t}");
        }
        assert_eq!(found, DType::ALL.len());
        assert!(DType::from_raw(count).is_none(), "the count is no type");
        assert!("f33".parse::<DType>().is_err(), "an unknown name");
    }

    #[test]
    fn dtype_has_floats_in_blocks_equals_ggml() {
        for &t in DType::ALL {
            // SAFETY: an existing type; C returns an entry of a constant table.
            let traits = unsafe { sys::ggml_get_type_traits(t.raw()) };
            // SAFETY: an entry of a constant table, which is never freed nor written.
            let traits = unsafe { traits.as_ref() }.unwrap();
            assert_eq!(t.has_floats_in_blocks(), t.is_quantized() && traits.to_float.is_some(), "{t}");
        }
    }

    #[test]
    fn dtype_from_ftype_equals_ggml() {
        for &(ftype, t) in FTYPES {
            // SAFETY: a constant that C knows; for others it aborts.
            assert_eq!(unsafe { sys::ggml_ftype_to_ggml_type(ftype) }, t.raw(), "{t}");
            assert_eq!(DType::from_ftype(ftype), Some(t));
        }
        assert_eq!(DType::from_ftype(sys::GGML_FTYPE_UNKNOWN), None);
    }

    #[test]
    fn row_size_requires_whole_blocks() {
        assert_eq!(DType::Q4_0.row_size(64), Some(36));
        assert_eq!(DType::Q4_0.row_size(33), None);
        assert_eq!(DType::F32.row_size(-1), None);
        assert_eq!(DType::F32.row_size(i64::MAX), None);
    }
}
