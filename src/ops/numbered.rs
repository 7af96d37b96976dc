//! Enums of functions that ggml identifies by a number.

/// Defines an enum of such functions. Each variant's doc links to its method of [`Context`](crate::Context).
macro_rules! numbered {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $raw:ty {
            $($variant:ident = $number:ident, $method:ident;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(
                #[doc = concat!("[`Context::", stringify!($method), "`].")]
                $variant,
            )*
        }

        impl $name {
            /// All functions.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// ggml's number of the function.
            pub(crate) fn raw(self) -> $raw {
                match self {
                    $(Self::$variant => ggml_sys::$number,)*
                }
            }
        }
    };
}

pub(super) use numbered;

#[cfg(test)]
mod tests {
    use ggml_sys as sys;

    use crate::ops::{Glu, UnaryOp};

    #[test]
    fn unary_and_glu_enums_cover_ggml() {
        let unary = (0..sys::GGML_UNARY_OP_COUNT).filter(|&n| n != sys::GGML_UNARY_OP_XIELU);
        assert!(UnaryOp::ALL.iter().map(|op| op.raw()).eq(unary), "{:?}", UnaryOp::ALL);
        let limited = [sys::GGML_GLU_OP_SWIGLU_OAI, sys::GGML_GLU_OP_SWIGLU_CLAMP];
        let glu = (0..sys::GGML_GLU_OP_COUNT).filter(|n| !limited.contains(n));
        assert!(Glu::ALL.iter().map(|op| op.raw()).eq(glu), "{:?}", Glu::ALL);
    }
}
