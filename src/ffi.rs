//! Strings that C lends us.

use std::ffi::{CStr, c_char};

/// Copies a C string; NULL gives an empty one.
///
/// # Safety
///
/// `text` must be NULL or a NUL-terminated string that lives during the call.
pub(crate) unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a C string by contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
