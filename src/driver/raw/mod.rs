//! Tables of functions that C calls, and the C objects that they belong to.
//!
//! ggml and this crate's safe layer call these functions. All callbacks rely on these rules, which comments in this
//! folder cite by number:
//!
//! 1. An object that C passes was made here, with the same driver type `D`: each table is in objects of one type.
//! 2. A backend is used by one thread at a time, and not freed while a callback runs with it.
//! 3. Tensors live during the callback, with their sources and buffers.
//! 4. Memory of the host that an asynchronous transfer uses stays as it is until the backend was synchronised or freed.

pub(super) mod buffer;
pub(super) mod device;
pub(super) mod stream;

use std::ffi::c_void;

use ggml_sys as sys;

/// Borrows what the `context` of a C object points to.
///
/// # Safety
///
/// `context` must point to a `T` that lives for `'a` and that nothing borrows mutably.
unsafe fn borrow<'a, T>(context: *mut c_void) -> &'a T {
    // SAFETY: `context` points to a live `T` that nothing borrows mutably, by this function's `# Safety`.
    unsafe { &*context.cast_const().cast() }
}

// The tables in this folder are those of this version of ggml's interface.
const _: () = assert!(sys::GGML_BACKEND_API_VERSION == 3, "ggml's interface of devices has another version");
