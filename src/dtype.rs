//! Element types as ggml's C knows them, and the Rust types that hold them. `DType` itself is plain data of the crate
//! `ggml-gguf`.

pub use ggml_gguf::DType;
use ggml_sys as sys;

/// A type by ggml's constant for it, and what ggml can do with the type.
pub(crate) trait CType: Copy {
    /// ggml's constant for the type. C may be given it only if the type [is known](CType::is_known), which
    /// [`CShape::bytes`](crate::shape::CShape::bytes) checks for every tensor.
    fn raw(self) -> sys::ggml_type;

    /// The type with ggml's constant `raw`, if it exists and ggml hasn't removed it.
    fn from_raw(raw: sys::ggml_type) -> Option<Self>;

    /// Whether the ggml that this crate was compiled for has the type.
    fn is_known(self) -> bool;

    /// Whether ggml can convert the type's blocks to and from floats. ggml has no functions for other types, and would
    /// call NULL.
    fn has_floats_in_blocks(self) -> bool;
}

impl CType for DType {
    #[inline]
    fn raw(self) -> sys::ggml_type {
        // The C type of ggml's constants is signed on Windows, and unsigned elsewhere.
        sys::ggml_type::from_ne_bytes(self.id().to_ne_bytes())
    }

    #[inline]
    fn from_raw(raw: sys::ggml_type) -> Option<Self> {
        Self::from_id(u32::from_ne_bytes(raw.to_ne_bytes()))
    }

    #[inline]
    fn is_known(self) -> bool {
        // Each version of ggml adds its new types at the end. Types that ggml has removed are not among this crate's.
        self.raw() < sys::GGML_TYPE_COUNT
    }

    fn has_floats_in_blocks(self) -> bool {
        self.is_quantized() && !matches!(self, Self::Q8_1 | Self::Q8_K)
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals the trait")]
    pub trait ElementSeal {}
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
pub trait Element: bytemuck::Pod + sealed::ElementSeal {
    /// The corresponding element type.
    const DTYPE: DType;
    /// The Rust type's name in error messages.
    const NAME: &'static str;
}

macro_rules! elements {
    ($($t:ty => $variant:ident, $name:literal;)*) => {
        $(
            impl sealed::ElementSeal for $t {}
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
    use crate::guard::guarded;

    /// Each of ggml's type constants is one of this crate's types, with the same name and blocks, or belonged to a type
    /// that ggml has removed. Types of this crate that ggml doesn't know are those of later versions.
    #[test]
    fn dtype_equals_ggml_types() {
        let count = sys::GGML_TYPE_COUNT;
        let mut found = 0;
        for raw in 0..count {
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below this number.
            let size = unsafe { sys::ggml_type_size(raw) };
            let Some(t) = DType::from_raw(raw) else {
                assert_eq!(size, 0, "ggml has a type {raw} that is missing here");
                continue;
            };
            found += 1;
            assert!(t.raw() == raw && t.is_known(), "{t}");
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below this number.
            let name = unsafe { sys::ggml_type_name(raw) };
            // SAFETY: the name is a NUL-terminated constant.
            assert_eq!(unsafe { crate::ffi::string(name) }, t.name());
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below this number.
            let block = unsafe { sys::ggml_blck_size(raw) };
            assert_eq!((t.block_size(), t.type_size()), (block, size), "{t}");
            // SAFETY: a lookup in a table of `GGML_TYPE_COUNT` entries; `raw` is below this number.
            assert_eq!(t.is_quantized(), unsafe { sys::ggml_is_quantized(raw) }, "{t}");
        }
        let unknown: Vec<_> = DType::ALL.iter().filter(|t| !t.is_known()).collect();
        assert_eq!(found + unknown.len(), DType::ALL.len());
        let later: &[&DType] = if cfg!(ggml_0_28) { &[] } else { &[&DType::F8_E4M3] };
        assert_eq!(unknown, later);
    }

    #[test]
    fn dtype_has_floats_in_blocks_equals_ggml() {
        for &t in DType::ALL.iter().filter(|t| t.is_known()) {
            // SAFETY: the type exists, so C returns an entry of a constant table.
            let traits = unsafe { sys::ggml_get_type_traits(t.raw()) };
            // SAFETY: the pointer is to an entry of a constant table, which is never freed nor written.
            let traits = unsafe { traits.as_ref() }.unwrap();
            assert_eq!(t.has_floats_in_blocks(), t.is_quantized() && traits.to_float.is_some(), "{t}");
        }
    }

    #[test]
    fn dtype_from_ftype_equals_ggml() {
        for ftype in -2..100 {
            let ours = DType::from_ftype(ftype).filter(|t| t.is_known());
            // SAFETY: C compares the number with those that it knows, and aborts for others. The guarded call makes
            // this an error.
            let theirs = unsafe { guarded!(call, sys::ggml_ftype_to_ggml_type(ftype)) };
            assert_eq!(ours.map(CType::raw), theirs.ok(), "{ftype}");
        }
        assert_eq!(DType::from_ftype(sys::GGML_FTYPE_UNKNOWN), None);
    }
}
