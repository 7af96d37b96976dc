//! Macros for enums that are numbers in ggml.

/// Defines an enum whose variants stand for constants of ggml.
macro_rules! numbered {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $raw:ty {
            $($(#[$about:meta])* $variant:ident = $number:ident;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$about])* $variant,)*
        }

        impl $name {
            /// ggml's constant for the variant.
            pub(crate) const fn raw(self) -> $raw {
                match self {
                    $(Self::$variant => ggml_sys::$number,)*
                }
            }

            /// The variant that stands for ggml's constant `raw`; `None` if this crate doesn't know it.
            pub(crate) const fn of(raw: $raw) -> Option<Self> {
                match raw {
                    $(ggml_sys::$number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use numbered;

/// Defines an enum of functions, whose variants stand for constants of ggml. Each variant's doc links to the function's
/// method of [`Context`](crate::Context).
macro_rules! functions {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $raw:ty {
            $($variant:ident = $number:ident, $method:ident;)*
        }
    ) => {
        $crate::op::numbered::numbered! {
            $(#[$attribute])*
            #[derive(Hash)]
            #[non_exhaustive]
            pub enum $name: $raw {
                $(
                    #[doc = concat!("[`Context::", stringify!($method), "`](crate::Context::", stringify!($method), ").")]
                    $variant = $number;
                )*
            }
        }

        impl $name {
            /// All functions of this enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}
pub(super) use functions;

#[cfg(test)]
mod tests {
    use ggml_sys as sys;

    use crate::op::{GluOp, UnaryOp};

    #[test]
    fn unary_and_glu_enums_cover_ggml() {
        let unary = (0..sys::GGML_UNARY_OP_COUNT).filter(|&n| n != sys::GGML_UNARY_OP_XIELU);
        assert!(UnaryOp::ALL.iter().map(|op| op.raw()).eq(unary), "{:?}", UnaryOp::ALL);
        let limited = [sys::GGML_GLU_OP_SWIGLU_OAI, sys::GGML_GLU_OP_SWIGLU_CLAMP];
        let glu = (0..sys::GGML_GLU_OP_COUNT).filter(|n| !limited.contains(n));
        assert!(GluOp::ALL.iter().map(|op| op.raw()).eq(glu), "{:?}", GluOp::ALL);
    }
}
