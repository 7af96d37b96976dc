//! The abort guard: every call into ggml that may assert or throw goes through [`call`].
//!
//! ggml reports a broken precondition by `abort()`. The shim in `ggml-sys` sets ggml's abort callback to one that throws
//! a C++ exception, and catches that exception, or any other, at the guarded call. What it can't help: an abort on a
//! thread of ggml's own. See `docs/safety.md`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::callback;
use crate::error::{Error, Result};
use crate::log::{self, Deferral};
use crate::version;

type Trampoline = unsafe extern "C-unwind" fn(*mut c_void);

// Declared here rather than generated: the function pointer must be able to unwind.
unsafe extern "C-unwind" {
    fn ggml_sys_guard(call: Trampoline, data: *mut c_void, message: *mut c_char, size: usize) -> c_int;
    fn ggml_sys_guard_compute(call: Trampoline, data: *mut c_void, message: *mut c_char, size: usize) -> c_int;
    fn ggml_sys_guard_install();
    fn ggml_sys_cancel() -> !;
}

/// `GGML_SYS_RETURNED` and its like in the shim's header.
const RETURNED: c_int = 0;
const ABORTED: c_int = 1;
const CANCELLED: c_int = 3;

/// The longest message kept, with its closing NUL.
const MESSAGE: usize = 512;
type Message = [c_char; MESSAGE];

/// What a guarded call works on, reached through C's `void *`.
struct Slot<F, R> {
    call: Option<F>,
    result: Option<R>,
}

/// # Safety
///
/// `data` must point to a live `Slot<F, R>` that nothing else uses during the call.
unsafe extern "C-unwind" fn trampoline<F: FnOnce() -> R, R>(data: *mut c_void) {
    // SAFETY: live and unaliased by contract.
    let slot = unsafe { &mut *data.cast::<Slot<F, R>>() };
    if let Some(f) = slot.call.take() {
        slot.result = Some(f());
    }
}

/// Runs `f`, which makes one call into ggml named `name`, and turns an assertion or a C++ exception into an error.
///
/// `f` must own nothing that needs dropping and must not panic: a C++ exception may unwind through it. This never panics
/// either, so the caller can write down what C did.
#[inline]
pub(crate) fn call<R>(name: &'static str, f: impl FnOnce() -> R) -> Result<R> {
    callback::check_open(name)?;
    guarded(name, ggml_sys_guard, f)
}

/// [`call`] for a destructor: a failure has nowhere to go, so what it was to free is leaked, which is safe.
pub(crate) fn free(name: &'static str, f: impl FnOnce()) {
    if let Err(error) = settle(name, f) {
        log::say(::log::Level::Error, format!("leaked: {error}"));
    }
}

/// [`call`] that is allowed inside of user code too: for what ends something.
pub(crate) fn settle<R>(name: &'static str, f: impl FnOnce() -> R) -> Result<R> {
    guarded(name, ggml_sys_guard, f)
}

/// Whether guarded calls left the object that they were made on in an unknown state: something was thrown inside it.
pub(crate) fn interrupted<R>(result: &Result<R>) -> bool {
    matches!(result, Err(Error::Ggml { .. } | Error::Exception { .. }))
}

/// What ggml means by some assertions: that there is no memory.
pub(crate) fn or_out_of_memory(error: Error) -> Error {
    match error {
        Error::Ggml { call, message, log } if message.contains("!= NULL") || log.contains("failed to allocate") => {
            Error::OutOfMemory { what: call.into(), bytes: None, log }
        }
        Error::Exception { call, message, log } if &*message == "std::bad_alloc" => {
            Error::OutOfMemory { what: call.into(), bytes: None, log }
        }
        other => other,
    }
}

/// [`call`] for a function that runs kernels: exceptions are caught, but an assertion in one of a CPU's is final, because
/// worker threads still use this stack.
#[inline]
pub(crate) fn compute<R>(name: &'static str, f: impl FnOnce() -> R) -> Result<R> {
    callback::check_open(name)?;
    guarded(name, ggml_sys_guard_compute, f)
}

/// [`compute`] for a call that lasts as long as a server: what it logs goes to the logger line by line.
#[cfg(feature = "rpc")]
pub(crate) fn serve<R>(name: &'static str, f: impl FnOnce() -> R) -> Result<R> {
    callback::check_open(name)?;
    protected(name, ggml_sys_guard_compute, f)
}

/// Leaves the guarded call that this thread is inside of, which then fails with [`Error::Cancelled`]. For callbacks out of
/// which C offers no true way to stop; no frame in between may own anything that needs dropping.
pub(crate) fn cancel() -> ! {
    // SAFETY: callbacks run inside a guarded call, which catches what this throws.
    unsafe { ggml_sys_cancel() }
}

type Shim = unsafe extern "C-unwind" fn(Trampoline, *mut c_void, *mut c_char, usize) -> c_int;

#[inline]
fn guarded<F: FnOnce() -> R, R>(name: &'static str, shim: Shim, f: F) -> Result<R> {
    let _deferral = Deferral::begin();
    protected(name, shim, f)
}

#[inline]
fn protected<F: FnOnce() -> R, R>(name: &'static str, shim: Shim, f: F) -> Result<R> {
    install()?;
    let mark = log::mark();
    let mut message = MaybeUninit::<Message>::uninit();
    let mut slot = Slot { call: Some(f), result: None };
    // SAFETY: the trampoline's type parameters are those of `slot`, which lives and is used by nothing else during the
    // call; `message` has MESSAGE bytes. C keeps neither.
    let end = unsafe { shim(trampoline::<F, R>, (&raw mut slot).cast(), message.as_mut_ptr().cast(), MESSAGE) };
    match slot.result {
        Some(result) if end == RETURNED => Ok(result),
        // SAFETY: the call did not return, so the shim wrote a NUL-terminated text of at most MESSAGE bytes, unless it was
        // cancelled.
        _ => Err(unsafe { failure(name, end, mark, &message) }),
    }
}

/// The error for a call that did not return. Apart from the calls that do, of which there is one for each operation.
///
/// # Safety
///
/// `message` must hold a NUL-terminated text unless `end` is CANCELLED.
#[cold]
unsafe fn failure(name: &'static str, end: c_int, mark: u64, message: &MaybeUninit<Message>) -> Error {
    if end == CANCELLED {
        return Error::Cancelled;
    }
    // SAFETY: such a text, by contract.
    let text = unsafe { CStr::from_ptr(message.as_ptr().cast()) };
    let message = text.to_string_lossy().into();
    let log = log::since(mark);
    match end {
        ABORTED => Error::Ggml { call: name, message, log },
        _ => Error::Exception { call: name, message, log },
    }
}

/// Makes sure that ggml is the right one, and installs the abort and log callbacks, once for the process. ggml keeps both in
/// unsynchronised globals, so this comes before any other call.
///
/// # Errors
///
/// [`Error::Version`].
#[inline]
pub(crate) fn install() -> Result<()> {
    static ONCE: OnceLock<()> = OnceLock::new();
    version::check()?;
    ONCE.get_or_init(|| {
        // SAFETY: sets a global of ggml's; no other thread is inside ggml through this crate yet.
        unsafe { ggml_sys_guard_install() };
        log::install();
    });
    Ok(())
}

/// Checks, before the first CPU kernel can run, that the processor has what ggml was compiled for.
///
/// # Errors
///
/// [`Error::Cpu`] names what is missing.
pub(crate) fn check_cpu() -> Result<()> {
    static MISSING: OnceLock<String> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let lacking: Vec<_> = ggml_sys::CPU_FEATURES.iter().copied().filter(|f| !detected(f)).collect();
        lacking.join(", ")
    });
    if missing.is_empty() { Ok(()) } else { Err(Error::Cpu { missing: missing.as_str().into() }) }
}

/// Whether the running processor has `feature`; features this list does not know are taken to be there.
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

/// Whether the processor has AVX-VNNI, of which the standard library's macro knows from Rust 1.89 on.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[allow(unused_unsafe, reason = "newer Rust has these functions safe")]
fn avxvnni() -> bool {
    #[cfg(target_arch = "x86")]
    use std::arch::x86::__cpuid_count;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::__cpuid_count;
    // What the system has to keep for it is what it keeps for AVX2.
    if !std::arch::is_x86_feature_detected!("avx2") {
        return false;
    }
    // SAFETY: a processor with AVX2 has the instruction, and this leaf.
    let leaves = unsafe { __cpuid_count(7, 0) }.eax;
    // SAFETY: as above.
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
            // SAFETY: an invalid type makes C assert before it looks at the context.
            let _t = unsafe { ggml_sys::ggml_new_tensor_1d(std::ptr::null_mut(), ggml_sys::ggml_type::MAX, 1) };
        })
    }

    #[test]
    fn an_assertion_is_an_error_that_names_its_place() {
        let Err(Error::Ggml { call: "ggml_new_tensor_1d", message, .. }) = refused() else { panic!("not refused") };
        assert!(message.contains("ggml.c:") && message.contains("GGML_ASSERT"), "{message}");
    }

    #[test]
    fn a_guard_inside_another_catches_its_own() {
        let inner = call("outer", refused);
        assert!(matches!(inner, Ok(Err(Error::Ggml { .. }))), "{inner:?}");
        let outer = call("outer", || {
            let inner = compute("inner", || 1);
            assert!(matches!(inner, Ok(1)), "{inner:?}");
            refused()
        });
        assert!(matches!(outer, Ok(Err(Error::Ggml { .. }))), "{outer:?}");
    }

    /// Vulkan computes on the caller's thread. What a CPU kernel asserts ends the process.
    #[test]
    fn an_assertion_of_vulkan_is_an_error_also_while_it_computes() {
        for file in [c"/a b/ggml-vulkan.cpp", c"C:\\x\\ggml-vulkan-common.h", c"ggml-vulkan.cpp"] {
            let result = compute("computes", || {
                if std::hint::black_box(true) {
                    // SAFETY: C strings; there is nothing to be put in for.
                    unsafe { sys::ggml_abort(file.as_ptr(), 7, c"text".as_ptr()) }
                }
            });
            let Err(Error::Ggml { call: "computes", message, .. }) = result else { panic!("{result:?}") };
            assert!(message.ends_with(":7: text"), "{message}");
        }
    }

    #[test]
    fn a_callback_leaves_the_call_it_is_inside_of() {
        let result = compute("cancelled", || {
            if std::hint::black_box(true) {
                cancel();
            }
        });
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn a_cpp_exception_is_an_error() {
        unsafe extern "C-unwind" {
            /// `std::__throw_bad_alloc()` of libstdc++.
            #[link_name = "_ZSt17__throw_bad_allocv"]
            fn throw_bad_alloc();
        }
        let result = call("allocate", || {
            // SAFETY: it only throws.
            unsafe { throw_bad_alloc() }
        });
        let Err(Error::Exception { call: "allocate", message, .. }) = result else { panic!("{result:?}") };
        assert_eq!(&*message, "std::bad_alloc");
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn avx_vnni_is_there_where_linux_lists_it() {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = processors.lines().find(|line| line.starts_with("flags")).unwrap();
        assert_eq!(avxvnni(), flags.split_whitespace().any(|flag| flag == "avx_vnni"));
    }

    /// What ggml logged during the call comes with the error, what it logged before does not.
    #[test]
    fn an_error_carries_the_lines_of_its_call() {
        let say = |text: &CStr| {
            let (mut callback, mut user) = (None, std::ptr::null_mut());
            // SAFETY: C writes its callback and the user data to the two places.
            unsafe { ggml_sys::ggml_log_get(&raw mut callback, &raw mut user) };
            if let Some(callback) = callback {
                // SAFETY: the callback is this crate's, the text a C string.
                unsafe { callback(ggml_sys::GGML_LOG_LEVEL_ERROR, text.as_ptr(), user) };
            }
        };
        install().unwrap();
        say(c"before\n");
        let result = call("logs", || {
            say(c"during");
            // SAFETY: an invalid type makes C assert before it looks at the context.
            let _t = unsafe { ggml_sys::ggml_new_tensor_1d(std::ptr::null_mut(), ggml_sys::ggml_type::MAX, 1) };
        });
        let Err(Error::Ggml { log, .. }) = result else { panic!("{result:?}") };
        assert_eq!(&*log, "during");
    }
}
