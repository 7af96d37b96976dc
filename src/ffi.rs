//! Strings and numbers that C lends us.

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

/// Numbers that C lends us.
///
/// # Safety
///
/// `first` must point to `n` initialised elements that live for 'a and that nothing writes to; it must be aligned and not
/// NULL.
#[expect(clippy::disallowed_methods, reason = "the one place for it")]
pub(crate) unsafe fn slice<'a, T>(first: *const T, n: usize) -> &'a [T] {
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(first, n) }
}

/// Numbers that C lends us to change.
///
/// # Safety
///
/// As for [`slice`], and nothing else may use them for 'a.
#[expect(clippy::disallowed_methods, reason = "the one place for it")]
pub(crate) unsafe fn slice_mut<'a, T>(first: *mut T, n: usize) -> &'a mut [T] {
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts_mut(first, n) }
}
