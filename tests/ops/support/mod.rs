//! Shared helpers of the tests of operations.

mod in_place;
pub(crate) mod lab;

pub(crate) use in_place::assert_in_place;
pub(crate) use lab::Lab;
pub(crate) use testkit::array::{Array, assert_close, derived, weighted};
pub(crate) use testkit::encode::precision;
pub(crate) use testkit::layout::Layout;

/// Asserts that a call fails with this variant of [`ggml::Error`].
macro_rules! refused {
    ($variant:ident, $call:expr) => {
        refused!($variant, $call, "")
    };
    ($variant:ident, $call:expr, $($context:tt)+) => {
        match $call {
            Err(ggml::Error::$variant { .. }) => {}
            other => panic!(
                "{} should be refused as {}, got {other:?} ({})",
                stringify!($call),
                stringify!($variant),
                format_args!($($context)+)
            ),
        }
    };
}
pub(crate) use refused;

/// `shape`, padded with ones.
pub(crate) fn ne<const N: usize>(shape: [usize; N]) -> [usize; 4] {
    let mut full = [1; 4];
    full[..N].copy_from_slice(&shape);
    full
}
