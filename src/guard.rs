//! The abort guard: every call into ggml that may assert or throw goes through [`call`].
//!
//! ggml reports a failed assertion by `abort()`. The shim in `ggml-sys` sets ggml's abort callback to one that throws a
//! C++ exception, and catches that exception, or any other, at the guarded call. It can't catch an abort on one of
//! ggml's own threads. See `docs/safety.md`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::callback;
use crate::error::{Error, Result};
use crate::list;
use crate::log::{self, Deferral};
use crate::version;

/// Calls a C function through one of this file's functions, which gets the C function's name: `guarded!(call,
/// sys::ggml_f(a, b))` is `call("ggml_f", || sys::ggml_f(a, b))`.
macro_rules! guarded {
    ($guard:ident, $sys:ident::$f:ident($($arg:expr),* $(,)?)) => {
        $crate::guard::$guard(stringify!($f), || $sys::$f($($arg),*))
    };
}
pub(crate) use guarded;

type Trampoline = unsafe extern "C-unwind" fn(*mut c_void);

// This is declared here, not generated, because the function pointer must be `C-unwind`.
unsafe extern "C-unwind" {
    fn ggml_sys_guard(call: Trampoline, data: *mut c_void, message: *mut c_char, size: usize) -> c_int;
    fn ggml_sys_guard_compute(call: Trampoline, data: *mut c_void, message: *mut c_char, size: usize) -> c_int;
    fn ggml_sys_guard_install();
    fn ggml_sys_cancel() -> !;
}

/// How a guarded call ended, as the shim reports it (`GGML_SYS_RETURNED` and so on in its header).
const RETURNED: c_int = 0;
const ABORTED: c_int = 1;
const CANCELLED: c_int = 3;

/// The maximum length of an error message from the shim, including the NUL.
const MESSAGE: usize = 512;
type Message = [c_char; MESSAGE];

/// The closure and the result of a guarded call, passed through C's `void *`.
struct CallSlot<F, R> {
    call: Option<F>,
    result: Option<R>,
}

/// # Safety
///
/// `data` must point to a live `CallSlot<F, R>` that nothing else uses during the call.
unsafe extern "C-unwind" fn trampoline<F: FnOnce() -> R, R>(data: *mut c_void) {
    // SAFETY: the slot is live and not aliased, by this function's `# Safety`.
    let slot = unsafe { &mut *data.cast::<CallSlot<F, R>>() };
    if let Some(f) = slot.call.take() {
        slot.result = Some(f());
    }
}

/// Runs `f`, which makes one call into ggml named `name`, and turns an assertion or a C++ exception into an error.
///
/// `f` must own nothing that needs dropping, because a C++ exception may unwind through it, and must not panic. This
/// never panics either, so that the caller can always record what C did.
#[inline]
pub(crate) fn call<R>(name: &'static str, f: impl FnOnce() -> R) -> Result<R> {
    callback::check_reentry(name)?;
    deferred(name, ggml_sys_guard, f)
}

/// Makes a guarded call, as [`call`] does, of a function that makes an object. If that returns NULL, the result is an
/// error with ggml's log.
pub(crate) fn new<T>(name: &'static str, f: impl FnOnce() -> *mut T) -> Result<NonNull<T>> {
    let mark = log::mark();
    NonNull::new(call(name, f)?).ok_or_else(|| Error::Null { call: name, log: log::since(mark) })
}

/// Makes a guarded call, as [`call`] does, of a destructor. A failure can't be returned, so it is logged and the object
/// is leaked, which is safe.
pub(crate) fn free(name: &'static str, f: impl FnOnce()) {
    let result = reentrant(name, f);
    let what = if interrupted(&result) { "leaked" } else { "freed" };
    if let Err(error) = result {
        log::say(::log::Level::Error, format!("{what}: {error}"));
    }
}

/// Makes a guarded call, as [`call`] does, and works inside user code, too: for destructors and waits.
pub(crate) fn reentrant<R>(name: &'static str, f: impl FnOnce() -> R) -> Result<R> {
    deferred(name, ggml_sys_guard, f)
}

/// Whether the result is that of a guarded call which was interrupted inside ggml, and so left its object in an unknown
/// state.
pub(crate) fn interrupted<R>(result: &Result<R>) -> bool {
    matches!(result, Err(Error::Ggml { .. } | Error::Exception { .. }))
}

/// Turns the errors of assertions and exceptions by which ggml reports failed allocations into [`Error::OutOfMemory`].
pub(crate) fn or_out_of_memory(error: Error) -> Error {
    match error {
        Error::Ggml { call, message, log } if message.contains("!= NULL") || log.contains("failed to allocate") => {
            Error::OutOfMemory { what: call.into(), bytes: None, log }
        }
        Error::Exception { call, message, log } if matches!(&*message, "" | "std::bad_alloc") => {
            Error::OutOfMemory { what: call.into(), bytes: None, log }
        }
        other => other,
    }
}

/// Makes a guarded call, as [`call`] does, of a function that runs kernels. Exceptions are caught, but a failed
/// assertion in a CPU kernel ends the process, because worker threads still use this stack.
#[inline]
pub(crate) fn compute<R>(name: &'static str, f: impl FnOnce() -> R) -> Result<R> {
    callback::check_reentry(name)?;
    deferred(name, ggml_sys_guard_compute, f)
}

/// Leaves the guarded call that this thread is in, which then fails with [`Error::Cancelled`]. This is for callbacks
/// that can't stop C otherwise. No stack frame between the callback and the guarded call may own anything that needs
/// dropping.
pub(crate) fn cancel() -> ! {
    // SAFETY: callbacks run inside a guarded call, which catches the exception that this throws.
    unsafe { ggml_sys_cancel() }
}

type Shim = unsafe extern "C-unwind" fn(Trampoline, *mut c_void, *mut c_char, usize) -> c_int;

#[inline]
fn deferred<F: FnOnce() -> R, R>(name: &'static str, shim: Shim, f: F) -> Result<R> {
    let _deferral = Deferral::begin();
    protected(name, shim, f)
}

#[inline]
fn protected<F: FnOnce() -> R, R>(name: &'static str, shim: Shim, f: F) -> Result<R> {
    install()?;
    // A device's callback may make this call inside another guarded call, which may have a failure to report: keep that
    // for later.
    let outer = callback::take_failure();
    let mark = log::mark();
    let mut message = MaybeUninit::<Message>::uninit();
    let mut slot = CallSlot { call: Some(f), result: None };
    // SAFETY: the trampoline's type parameters are those of `slot`, which is live and not aliased during the call;
    // `message` has MESSAGE bytes. C keeps pointers to neither.
    let end = unsafe { shim(trampoline::<F, R>, (&raw mut slot).cast(), message.as_mut_ptr().cast(), MESSAGE) };
    let reported = callback::take_failure();
    if let Some(outer) = outer {
        callback::fail(outer);
    }
    match (slot.result, reported) {
        (Some(_), Some(error)) if end == RETURNED => Err(error),
        (Some(result), None) if end == RETURNED => Ok(result),
        (None, Some(error)) if end == CANCELLED => Err(error),
        // SAFETY: the call did not return, so the shim wrote a NUL-terminated text of at most MESSAGE bytes, unless the
        // call was cancelled.
        _ => Err(unsafe { failure(name, end, mark, &message) }),
    }
}

/// The error for a call that did not return. This code is out of line, because most calls return.
///
/// # Safety
///
/// `message` must hold a NUL-terminated text unless `end` is CANCELLED.
#[cold]
unsafe fn failure(name: &'static str, end: c_int, mark: u64, message: &MaybeUninit<Message>) -> Error {
    if end == CANCELLED {
        return Error::Cancelled;
    }
    // SAFETY: `message` is a NUL-terminated text, by this function's `# Safety`: `end` is not CANCELLED here.
    let text = unsafe { CStr::from_ptr(message.as_ptr().cast()) };
    // The message is empty if there is too little memory for it.
    let message = list::text(&text.to_string_lossy(), name).unwrap_or_default();
    let log = log::since(mark);
    match end {
        ABORTED => Error::Ggml { call: name, message, log },
        _ => Error::Exception { call: name, message, log },
    }
}

/// Checks ggml's version and installs the abort and log callbacks, once per process. ggml keeps both callbacks in
/// globals without a lock, so this function runs before all other calls into ggml.
///
/// # Errors
///
/// [`Error::Version`].
#[inline]
pub(crate) fn install() -> Result<()> {
    static ONCE: OnceLock<()> = OnceLock::new();
    version::check()?;
    ONCE.get_or_init(|| {
        // SAFETY: sets a global of ggml; `OnceLock` keeps other threads of this crate out of ggml until it is set.
        unsafe { ggml_sys_guard_install() };
        log::install();
    });
    Ok(())
}

/// Checks, before any CPU kernel runs, that the CPU has the features that ggml was compiled for.
///
/// # Errors
///
/// [`Error::Cpu`] lists the missing features.
pub(crate) fn check_cpu() -> Result<()> {
    static MISSING: OnceLock<String> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let lacking: Vec<_> = ggml_sys::CPU_FEATURES.iter().copied().filter(|f| !detected(f)).collect();
        lacking.join(", ")
    });
    if missing.is_empty() { Ok(()) } else { Err(Error::Cpu { missing: missing.as_str().into() }) }
}

/// Whether this CPU has `feature`. Features that the list below doesn't have count as present.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn detected(feature: &str) -> bool {
    macro_rules! known {
        ($($name:tt),* $(,)?) => {
            match feature {
                $($name => std::arch::is_x86_feature_detected!($name),)*
                "avxvnni" => avxvnni(),
                _ => true,
            }
        };
    }
    known!(
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "popcnt",
        "avx",
        "avx2",
        "bmi1",
        "bmi2",
        "fma",
        "f16c",
        "avx512f",
        "avx512cd",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512vbmi",
        "avx512vnni",
        "avx512bf16",
    )
}

/// Whether this CPU has AVX-VNNI. The standard library's macro supports it only since Rust 1.89.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[allow(unused_unsafe, reason = "newer Rust has these functions safe")]
fn avxvnni() -> bool {
    #[cfg(target_arch = "x86")]
    use std::arch::x86::__cpuid_count;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::__cpuid_count;
    // AVX-VNNI uses AVX2's registers, which the system must support.
    if !std::arch::is_x86_feature_detected!("avx2") {
        return false;
    }
    // SAFETY: a CPU with AVX2 has the `cpuid` instruction and leaf 7.
    let leaves = unsafe { __cpuid_count(7, 0) }.eax;
    // SAFETY: a CPU with AVX2 has the `cpuid` instruction; subleaf 1 exists (checked first).
    leaves >= 1 && unsafe { __cpuid_count(7, 1) }.eax & 1 << 4 != 0
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn detected(_feature: &str) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use ggml_sys as sys;

    use super::*;

    fn refused() -> Result<()> {
        call("ggml_new_tensor_1d", || {
            // SAFETY: an invalid type makes C's assertion fail before it reads the context.
            let _t = unsafe { ggml_sys::ggml_new_tensor_1d(std::ptr::null_mut(), ggml_sys::ggml_type::MAX, 1) };
        })
    }

    #[test]
    fn guarded_assertion_is_an_error_with_its_location() {
        let Err(Error::Ggml { call: "ggml_new_tensor_1d", message, .. }) = refused() else { panic!("not refused") };
        assert!(message.contains("ggml.c:") && message.contains("GGML_ASSERT"), "{message}");
    }

    #[test]
    fn nested_guard_catches_its_own_assertion() {
        let inner = call("outer", refused);
        assert!(matches!(inner, Ok(Err(Error::Ggml { .. }))), "{inner:?}");
        let outer = call("outer", || {
            let inner = compute("inner", || 1);
            assert!(matches!(inner, Ok(1)), "{inner:?}");
            refused()
        });
        assert!(matches!(outer, Ok(Err(Error::Ggml { .. }))), "{outer:?}");
    }

    /// Vulkan runs kernels on the caller's thread, so assertions of the Vulkan backend are caught. Those of CPU kernels
    /// end the process.
    #[test]
    fn guard_catches_vulkan_assertions_during_computation() {
        for file in [c"/a b/ggml-vulkan.cpp", c"C:\\x\\ggml-vulkan-common.h", c"ggml-vulkan.cpp"] {
            let result = compute("computes", || {
                if std::hint::black_box(true) {
                    // SAFETY: the arguments are C strings, and the format has no placeholders.
                    unsafe { sys::ggml_abort(file.as_ptr(), 7, c"text".as_ptr()) }
                }
            });
            let Err(Error::Ggml { call: "computes", message, .. }) = result else { panic!("{result:?}") };
            assert!(message.ends_with(":7: text"), "{message}");
        }
    }

    #[test]
    fn cancel_leaves_the_guarded_computation() {
        let result = compute("cancelled", || {
            if std::hint::black_box(true) {
                cancel();
            }
        });
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn guarded_cpp_exception_is_an_error() {
        unsafe extern "C-unwind" {
            /// The function `std::__throw_bad_alloc()` of libstdc++.
            #[link_name = "_ZSt17__throw_bad_allocv"]
            fn throw_bad_alloc();
        }
        let result = call("allocate", || {
            // SAFETY: the function takes no arguments and only throws.
            unsafe { throw_bad_alloc() }
        });
        let Err(Error::Exception { call: "allocate", message, .. }) = result else { panic!("{result:?}") };
        assert_eq!(&*message, "std::bad_alloc");
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn avxvnni_detection_agrees_with_linux() {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = processors.lines().find(|line| line.starts_with("flags")).unwrap();
        assert_eq!(avxvnni(), flags.split_whitespace().any(|flag| flag == "avx_vnni"));
    }

    /// An error contains the lines that ggml logged during the failed call, and no earlier ones.
    #[test]
    fn error_contains_the_log_of_its_call() {
        let say = |text: &CStr| {
            let (mut callback, mut user) = (None, std::ptr::null_mut());
            // SAFETY: C writes its callback and user data to these two variables.
            unsafe { ggml_sys::ggml_log_get(&raw mut callback, &raw mut user) };
            if let Some(callback) = callback {
                // SAFETY: the callback is this crate's own, and the text is a C string.
                unsafe { callback(ggml_sys::GGML_LOG_LEVEL_ERROR, text.as_ptr(), user) };
            }
        };
        install().unwrap();
        say(c"before\n");
        let result = call("logs", || {
            say(c"during");
            // SAFETY: an invalid type makes C's assertion fail before it reads the context.
            let _t = unsafe { ggml_sys::ggml_new_tensor_1d(std::ptr::null_mut(), ggml_sys::ggml_type::MAX, 1) };
        });
        let Err(Error::Ggml { log, .. }) = result else { panic!("{result:?}") };
        assert_eq!(&*log, "during");
    }
}
