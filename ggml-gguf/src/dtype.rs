//! Element types.

use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $id:literal, $name:literal, $block:literal, $size:literal, $doc:literal;)*) => {
        /// The type of a tensor's elements (`ggml_type`).
        ///
        /// ```
        /// use ggml_gguf::DType;
        /// assert_eq!((DType::Q4_0.block_size(), DType::Q4_0.type_size()), (32, 18)); // 4.5 bits for a number
        /// assert_eq!(DType::Q4_0.row_size(4096), Some(2304));
        /// assert_eq!("q4_K".parse::<DType>()?, DType::Q4_K);
        /// # Ok::<(), ggml_gguf::Error>(())
        /// ```
        #[doc(alias = "ggml_type")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(non_camel_case_types, reason = "the names are ggml's")]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum DType {
            $(#[doc = $doc] $variant = $id,)*
        }

        impl DType {
            /// All types.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The type's number in files, which is ggml's constant for it.
            ///
            /// ```
            /// use ggml_gguf::DType;
            /// assert_eq!(DType::Q8_0.id(), 8);
            /// assert_eq!(DType::from_id(8), Some(DType::Q8_0));
            /// assert_eq!(DType::from_id(4), None); // ggml has removed it
            /// ```
            #[inline]
            pub const fn id(self) -> u32 {
                match self {
                    $(Self::$variant => $id,)*
                }
            }

            /// The type with this number, if there is one.
            #[inline]
            pub const fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// ggml's name of the type, such as `f32` or `q4_K` (`ggml_type_name`).
            #[doc(alias = "ggml_type_name")]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Elements and bytes per block.
            #[inline]
            const fn block(self) -> (i64, usize) {
                match self {
                    $(Self::$variant => ($block, $size),)*
                }
            }
        }
    };
}

dtypes! {
    F32 = 0, "f32", 1, 4, "32-bit float";
    F16 = 1, "f16", 1, 2, "16-bit IEEE float";
    BF16 = 30, "bf16", 1, 2, "16-bit brain float";
    F64 = 28, "f64", 1, 8, "64-bit float";
    I8 = 24, "i8", 1, 1, "8-bit integer";
    I16 = 25, "i16", 1, 2, "16-bit integer";
    I32 = 26, "i32", 1, 4, "32-bit integer";
    I64 = 27, "i64", 1, 8, "64-bit integer";
    Q1_0 = 41, "q1_0", 128, 18, "1-bit blocks";
    Q2_0 = 42, "q2_0", 64, 18, "2-bit blocks";
    Q4_0 = 2, "q4_0", 32, 18, "4-bit blocks of 32, scale";
    Q4_1 = 3, "q4_1", 32, 20, "4-bit blocks of 32, scale and minimum";
    Q5_0 = 6, "q5_0", 32, 22, "5-bit blocks of 32, scale";
    Q5_1 = 7, "q5_1", 32, 24, "5-bit blocks of 32, scale and minimum";
    Q8_0 = 8, "q8_0", 32, 34, "8-bit blocks of 32, scale";
    Q8_1 = 9, "q8_1", 32, 36, "8-bit blocks of 32, scale and sum: an intermediate of kernels";
    Q2_K = 10, "q2_K", 256, 84, "2-bit super-blocks of 256";
    Q3_K = 11, "q3_K", 256, 110, "3-bit super-blocks of 256";
    Q4_K = 12, "q4_K", 256, 144, "4-bit super-blocks of 256";
    Q5_K = 13, "q5_K", 256, 176, "5-bit super-blocks of 256";
    Q6_K = 14, "q6_K", 256, 210, "6-bit super-blocks of 256";
    Q8_K = 15, "q8_K", 256, 292, "8-bit super-blocks of 256: an intermediate of kernels";
    IQ1_S = 19, "iq1_s", 256, 50, "1.6-bit codebook blocks of 256";
    IQ1_M = 29, "iq1_m", 256, 56, "1.8-bit codebook blocks of 256";
    IQ2_XXS = 16, "iq2_xxs", 256, 66, "2.1-bit codebook blocks of 256";
    IQ2_XS = 17, "iq2_xs", 256, 74, "2.3-bit codebook blocks of 256";
    IQ2_S = 22, "iq2_s", 256, 82, "2.5-bit codebook blocks of 256";
    IQ3_XXS = 18, "iq3_xxs", 256, 98, "3.1-bit codebook blocks of 256";
    IQ3_S = 21, "iq3_s", 256, 110, "3.4-bit codebook blocks of 256";
    IQ4_NL = 20, "iq4_nl", 32, 18, "4-bit non-linear blocks of 32";
    IQ4_XS = 23, "iq4_xs", 256, 136, "4-bit non-linear super-blocks of 256";
    TQ1_0 = 34, "tq1_0", 256, 54, "ternary, 1.7 bits";
    TQ2_0 = 35, "tq2_0", 256, 66, "ternary, 2.1 bits";
    MXFP4 = 39, "mxfp4", 32, 17, "4-bit float blocks of 32 (OCP MX)";
    NVFP4 = 40, "nvfp4", 64, 36, "4-bit float blocks with E4M3 scales";
    F8_E4M3 = 43, "f8_e4m3", 1, 1, "8-bit float with a 4-bit exponent (OCP FP8), up to 448; since ggml 0.28";
}

impl DType {
    /// Elements per block: 1 for plain types (`ggml_blck_size`).
    ///
    /// ```
    /// use ggml_gguf::DType;
    /// assert_eq!((DType::Q8_0.block_size(), DType::F16.block_size()), (32, 1));
    /// ```
    #[doc(alias = "ggml_blck_size")]
    #[inline]
    pub fn block_size(self) -> i64 {
        self.block().0
    }

    /// Bytes per block (`ggml_type_size`).
    ///
    /// ```
    /// use ggml_gguf::DType;
    /// assert_eq!((DType::Q8_0.type_size(), DType::F16.type_size()), (34, 2)); // 32 bytes and a scale; a number
    /// ```
    #[doc(alias = "ggml_type_size")]
    #[inline]
    pub fn type_size(self) -> usize {
        self.block().1
    }

    /// Whether the type stores blocks of quantised values (`ggml_is_quantized`).
    ///
    /// ```
    /// use ggml_gguf::DType;
    /// assert!(DType::Q4_K.is_quantized() && !DType::BF16.is_quantized());
    /// ```
    #[doc(alias = "ggml_is_quantized")]
    #[inline]
    pub fn is_quantized(self) -> bool {
        self.block().0 > 1
    }

    /// Whether it is the 8-bit float of ggml 0.28, which few kernels take. ggml doesn't call it quantised.
    #[doc(hidden)] // for the rules of the crate `ggml`
    #[inline]
    pub fn is_f8(self) -> bool {
        self == Self::F8_E4M3
    }

    /// Whether it is `f32`, `f16` or `bf16`.
    #[doc(hidden)] // for the rules of the crate `ggml`
    #[inline]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// The type of most tensors in a file with this `general.file_type`, or `None` if ggml doesn't know it or assigns
    /// it no type (`ggml_ftype_to_ggml_type`).
    ///
    /// ```
    /// use ggml_gguf::DType;
    /// assert_eq!(DType::from_ftype(7), Some(DType::Q8_0));
    /// assert_eq!(DType::from_ftype(4), None);
    /// ```
    #[doc(alias = "ggml_ftype_to_ggml_type")]
    pub fn from_ftype(ftype: i32) -> Option<Self> {
        FTYPES.iter().find(|(known, _)| *known == ftype).map(|(_, dtype)| *dtype)
    }

    /// The bytes of a row of `elements`, or `None` if they are not a whole number of blocks or the size overflows
    /// (`ggml_row_size`).
    ///
    /// ```
    /// use ggml_gguf::DType;
    /// assert_eq!(DType::F16.row_size(100), Some(200));
    /// assert_eq!(DType::Q8_0.row_size(100), None); // not a whole number of blocks of 32
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
const FTYPES: &[(i32, DType)] = &[
    (0, DType::F32),
    (1, DType::F16),
    (24, DType::BF16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (27, DType::Q1_0),
    (28, DType::Q2_0),
    (8, DType::Q5_0),
    (9, DType::Q5_1),
    (7, DType::Q8_0),
    (25, DType::MXFP4),
    (26, DType::NVFP4),
    (10, DType::Q2_K),
    (11, DType::Q3_K),
    (12, DType::Q4_K),
    (13, DType::Q5_K),
    (14, DType::Q6_K),
    (15, DType::IQ2_XXS),
    (16, DType::IQ2_XS),
    (17, DType::IQ3_XXS),
    (18, DType::IQ1_S),
    (23, DType::IQ1_M),
    (19, DType::IQ4_NL),
    (22, DType::IQ4_XS),
    (20, DType::IQ3_S),
    (21, DType::IQ2_S),
    (29, DType::F8_E4M3),
];

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_pads_types_and_shapes() {
        assert_eq!(format!("{:6}|{:>16}|", DType::F32, crate::Shape::from([2, 3])), "f32   |    [2, 3, 1, 1]|");
    }

    #[test]
    fn dtypes_are_told_apart_by_number_and_name() {
        for &t in DType::ALL {
            assert_eq!((DType::from_id(t.id()), t.name().to_uppercase().parse::<DType>().unwrap()), (Some(t), t));
            assert!(t.block_size() > 0 && t.type_size() > 0, "{t}");
        }
        assert_eq!((0..100).filter_map(DType::from_id).count(), DType::ALL.len());
        assert!("f33".parse::<DType>().unwrap_err().to_string().contains("there are: f32, "), "an unknown name");
    }

    #[test]
    fn row_size_requires_whole_blocks() {
        assert_eq!(DType::Q4_0.row_size(64), Some(36));
        assert_eq!(DType::Q4_0.row_size(33), None);
        assert_eq!(DType::F32.row_size(-1), None);
        assert_eq!(DType::F32.row_size(i64::MAX), None);
    }
}
