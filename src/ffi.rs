//! Pointers to C's objects, and safe copies and borrows of strings and arrays that C owns.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use ggml_sys as sys;

pub(crate) type CContext = *mut sys::ggml_context;
pub(crate) type CTensor = *mut sys::ggml_tensor;
pub(crate) type CConstTensor = *const sys::ggml_tensor;
pub(crate) type CBuffer = *mut sys::ggml_backend_buffer;
pub(crate) type CBufferType = *mut sys::ggml_backend_buffer_type;
pub(crate) type CBackend = *mut sys::ggml_backend;
pub(crate) type CEvent = *mut sys::ggml_backend_event;
/// A function of C that answers a question about a tensor.
pub(crate) type TensorPredicate = unsafe extern "C-unwind" fn(CConstTensor) -> bool;

/// Copies a C string; NULL becomes an empty one.
///
/// # Safety
///
/// `text` must be NULL or a NUL-terminated string that lives during the call.
pub(crate) unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: `text` is not NULL (checked above), and a C string, by this function's `# Safety`.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Copies the text that a C function returns about an object, such as its name.
///
/// # Safety
///
/// `f` may be called with `object`, and returns NULL or a NUL-terminated string that lives until this call ends.
pub(crate) unsafe fn text_of<T>(f: unsafe extern "C-unwind" fn(T) -> *const c_char, object: T) -> String {
    // SAFETY: `f` may be called with `object`, by this function's `# Safety`.
    let text = unsafe { f(object) };
    // SAFETY: `f` returns NULL or a C string that lives long enough, by this function's `# Safety`.
    unsafe { string(text) }
}

/// Copies the entries of a list that C owns, up to the entry that marks its end.
///
/// # Safety
///
/// `first` must be NULL, or point to initialised entries of which one `ends` the list, and that live during the call.
pub(crate) unsafe fn entries<T: Copy>(first: *const T, ends: impl Fn(&T) -> bool) -> Vec<T> {
    let mut all = Vec::new();
    let mut at = NonNull::new(first.cast_mut());
    while let Some(entry) = at {
        // SAFETY: `entry` is in the list, whose end was not reached yet.
        let value = unsafe { entry.read() };
        if ends(&value) {
            break;
        }
        all.push(value);
        // SAFETY: this entry is not the last one, so another one follows.
        at = Some(unsafe { entry.add(1) });
    }
    all
}

/// Borrows an array that C owns.
///
/// # Safety
///
/// `first` must be aligned, not NULL, and point to `n` initialised elements that live for 'a and that nothing writes
/// to.
#[expect(clippy::disallowed_methods, reason = "the one place for it")]
pub(crate) unsafe fn slice<'a, T>(first: *const T, n: usize) -> &'a [T] {
    // SAFETY: `from_raw_parts` requires what this function's `# Safety` does.
    unsafe { std::slice::from_raw_parts(first, n) }
}

/// Borrows an array that C owns, mutably.
///
/// # Safety
///
/// As for [`slice`], and nothing else may use the elements for 'a.
#[expect(clippy::disallowed_methods, reason = "the one place for it")]
pub(crate) unsafe fn slice_mut<'a, T>(first: *mut T, n: usize) -> &'a mut [T] {
    // SAFETY: `from_raw_parts_mut` requires what this function's `# Safety` does.
    unsafe { std::slice::from_raw_parts_mut(first, n) }
}
