//! Which ggml this is.

use ggml_sys as sys;

use crate::ffi;

/// The version that the linked ggml gives itself, such as `0.26.0` (`ggml_version`).
#[doc(alias = "ggml_version")]
pub fn version() -> String {
    // SAFETY: takes nothing; C returns a constant string.
    let text = unsafe { sys::ggml_version() };
    // SAFETY: a constant C string.
    unsafe { ffi::string(text) }
}

/// The commit that the linked ggml was built from, `unknown` where the build was not told (`ggml_commit`).
#[doc(alias = "ggml_commit")]
pub fn commit() -> String {
    // SAFETY: takes nothing; C returns a constant string.
    let text = unsafe { sys::ggml_commit() };
    // SAFETY: a constant C string.
    unsafe { ffi::string(text) }
}
