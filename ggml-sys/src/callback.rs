//! Callbacks that are declared as C's.
#![allow(clippy::disallowed_methods, reason = "nothing but transmute converts pointers to functions")]

/// A function pointer with C's calling convention, which ggml's functions take once it is [`into_unwind`].
///
/// ggml's abort callback may throw through a function of ggml's, so all are declared `extern "C-unwind"`, and so are pointers
/// to callbacks. A function that is `extern "C"`, perhaps another crate's, is accepted with this:
///
/// ```
/// use ggml_sys::IntoUnwind as _;
/// use std::ffi::{c_char, c_void};
///
/// unsafe extern "C" fn quiet(_level: ggml_sys::ggml_log_level, _text: *const c_char, _data: *mut c_void) {}
///
/// let callback: unsafe extern "C" fn(_, _, _) = quiet;
/// // SAFETY: the callback accepts anything, and no data.
/// unsafe { ggml_sys::ggml_log_set(Some(callback.into_unwind()), std::ptr::null_mut()) };
/// ```
///
/// A panic or an exception that reaches the end of such a function still ends the process.
///
/// [`into_unwind`]: IntoUnwind::into_unwind
pub trait IntoUnwind {
    /// The same pointer, `extern "C-unwind"`.
    type Unwind;

    /// The same function, for ggml.
    fn into_unwind(self) -> Self::Unwind;
}

macro_rules! into_unwind {
    ($($argument:ident)*) => {
        into_unwind!(@ extern "C" fn($($argument),*) -> R, extern "C-unwind" fn($($argument),*) -> R, $($argument)*);
        into_unwind!(@ unsafe extern "C" fn($($argument),*) -> R, unsafe extern "C-unwind" fn($($argument),*) -> R, $($argument)*);
    };
    (@ $from:ty, $to:ty, $($argument:ident)*) => {
        impl<R, $($argument),*> IntoUnwind for $from {
            type Unwind = $to;

            fn into_unwind(self) -> $to {
                // SAFETY: the types differ in the calling convention alone, and Rust guarantees that a caller's
                // `C-unwind` is compatible with a callee's `C`.
                unsafe { core::mem::transmute::<$from, $to>(self) }
            }
        }
    };
}

into_unwind!();
into_unwind!(A);
into_unwind!(A B);
into_unwind!(A B C);
into_unwind!(A B C D);
into_unwind!(A B C D E);
into_unwind!(A B C D E F);
into_unwind!(A B C D E F G);
into_unwind!(A B C D E F G H);
