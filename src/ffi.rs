//! Strings and arrays that C owns.

use std::ffi::{CStr, c_char};

/// Copies a C string; NULL becomes an empty one.
///
/// # Safety
///
/// `text` must be NULL or a NUL-terminated string that lives during the call.
pub(crate) unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not NULL (checked above), and a C string by contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Borrows an array that C owns.
///
/// # Safety
///
/// `first` must be aligned, not NULL, and point to `n` initialised elements that live for 'a and that nothing writes
/// to.
#[expect(clippy::disallowed_methods, reason = "the one place for it")]
pub(crate) unsafe fn slice<'a, T>(first: *const T, n: usize) -> &'a [T] {
    // SAFETY: by this function's contract, which is the same.
    unsafe { std::slice::from_raw_parts(first, n) }
}

/// Borrows an array that C owns, mutably.
///
/// # Safety
///
/// As for [`slice`], and nothing else may use the elements for 'a.
#[expect(clippy::disallowed_methods, reason = "the one place for it")]
pub(crate) unsafe fn slice_mut<'a, T>(first: *mut T, n: usize) -> &'a mut [T] {
    // SAFETY: by this function's contract, which is the same.
    unsafe { std::slice::from_raw_parts_mut(first, n) }
}
