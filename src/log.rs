//! ggml's log lines, handed to the [`log`](https://docs.rs/log) facade under the target `ggml`.
//!
//! Warnings and errors are also kept for a moment, so that an [`Error`](crate::Error) can carry what ggml said during
//! the call that failed.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::panic::{catch_unwind, resume_unwind};

use ggml_sys as sys;

/// How many warnings and errors are kept per thread.
const KEPT: usize = 16;

#[derive(Default)]
struct Lines {
    /// A line that ggml has begun and not ended, with its level.
    partial: String,
    level: Option<::log::Level>,
    /// The last warnings and errors with their numbers.
    kept: Vec<(u64, String)>,
    /// A panic of the user's logger that has not gone on yet.
    panic: Option<Box<dyn Any + Send>>,
}

thread_local! {
    static LINES: RefCell<Lines> = const { RefCell::new(Lines { partial: String::new(), level: None, kept: Vec::new(), panic: None }) };
    /// The number of warnings and errors seen: read at each guarded call, hence apart.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Whether there is a panic to go on with.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Marks a place in this thread's log.
#[inline]
pub(crate) fn mark() -> u64 {
    COUNT.get()
}

/// The warnings and errors that this thread logged since `mark`, a line each.
pub(crate) fn since(mark: u64) -> Box<str> {
    LINES.with_borrow(|l| {
        let lines: Vec<_> = l.kept.iter().filter(|(n, _)| *n > mark).map(|(_, s)| s.as_str()).collect();
        lines.join("\n").into()
    })
}

/// Makes ggml log through [`on_line`].
pub(crate) fn install() {
    // SAFETY: a global of ggml's; `on_line` has the type C expects and needs no user data, so nothing can dangle.
    unsafe { sys::ggml_log_set(Some(on_line), std::ptr::null_mut()) };
}

/// # Safety
///
/// `text` must be NULL or a C string; ggml's logger guarantees it.
unsafe extern "C-unwind" fn on_line(level: sys::ggml_log_level, text: *const c_char, _user: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: a C string by contract, which lives until this returns.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A panic in the user's logger must not cross C: it goes on when the call is over. The first one wins.
    if let Err(panic) = catch_unwind(|| receive(level, &text)) {
        LINES.with_borrow_mut(|l| {
            l.panic.get_or_insert(panic);
        });
        PANICKED.set(true);
    }
}

/// Goes on with a panic of the user's logger, if there was one on this thread.
#[inline]
pub(crate) fn resume() {
    if PANICKED.get() {
        resume_now();
    }
}

#[cold]
fn resume_now() {
    if !std::thread::panicking() {
        PANICKED.set(false);
        if let Some(panic) = LINES.with_borrow_mut(|l| l.panic.take()) {
            resume_unwind(panic);
        }
    }
}

/// Takes a piece of text, which may be a part of a line or several lines.
fn receive(level: sys::ggml_log_level, text: &str) {
    let level = match level {
        sys::GGML_LOG_LEVEL_ERROR => Some(::log::Level::Error),
        sys::GGML_LOG_LEVEL_WARN => Some(::log::Level::Warn),
        sys::GGML_LOG_LEVEL_INFO => Some(::log::Level::Info),
        sys::GGML_LOG_LEVEL_DEBUG => Some(::log::Level::Debug),
        sys::GGML_LOG_LEVEL_CONT => None, // goes on with the line before
        _ => Some(::log::Level::Trace),
    };
    let mut done = Vec::new();
    LINES.with_borrow_mut(|l| {
        if let Some(level) = level {
            l.flush(&mut done);
            l.level = Some(level);
        }
        for piece in text.split_inclusive('\n') {
            l.partial.push_str(piece);
            if piece.ends_with('\n') {
                l.flush(&mut done);
            }
        }
        // Warnings and errors are about to be read by an error message: they don't wait for a line end.
        if l.level.is_some_and(|l| l <= ::log::Level::Warn) {
            l.flush(&mut done);
        }
    });
    // Outside the borrow: the user's logger may itself call into ggml.
    for (level, line) in done {
        ::log::log!(target: "ggml", level, "{line}");
    }
}

impl Lines {
    /// Ends the line that was begun, if there is one.
    fn flush(&mut self, done: &mut Vec<(::log::Level, String)>) {
        let line = std::mem::take(&mut self.partial);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let level = self.level.unwrap_or(::log::Level::Info);
        if level <= ::log::Level::Warn {
            let n = COUNT.get() + 1;
            COUNT.set(n);
            if self.kept.len() == KEPT {
                self.kept.remove(0);
            }
            self.kept.push((n, line.to_owned()));
        }
        done.push((level, line.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that was logged since the last call, through a logger that all tests of this crate share.
    fn lines() -> &'static std::sync::Mutex<Vec<String>> {
        static LINES: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        struct Keep;
        impl ::log::Log for Keep {
            fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
                true
            }
            fn log(&self, r: &::log::Record<'_>) {
                let line = format!("{} {} {}", r.target(), r.level(), r.args());
                LINES.lock().unwrap().push(line);
            }
            fn flush(&self) {}
        }
        let _set_before = ::log::set_logger(&Keep);
        ::log::set_max_level(::log::LevelFilter::Trace);
        &LINES
    }

    #[test]
    fn lines_come_whole_and_none_is_lost() {
        let lines = lines();
        receive(sys::GGML_LOG_LEVEL_INFO, "test: begun");
        receive(sys::GGML_LOG_LEVEL_CONT, " and gone on");
        receive(sys::GGML_LOG_LEVEL_CONT, " and ended\ntest: second\n");
        receive(sys::GGML_LOG_LEVEL_DEBUG, "test: not ended");
        receive(sys::GGML_LOG_LEVEL_WARN, "test: next");
        let mut lines = lines.lock().unwrap();
        lines.retain(|l| l.contains("test: "));
        assert_eq!(
            *lines,
            [
                "ggml INFO test: begun and gone on and ended",
                "ggml INFO test: second",
                "ggml DEBUG test: not ended",
                "ggml WARN test: next",
            ]
        );
    }

    #[test]
    fn only_the_last_warnings_are_kept() {
        let start = mark();
        for i in 0..40 {
            receive(sys::GGML_LOG_LEVEL_ERROR, &format!("error {i}\n"));
        }
        receive(sys::GGML_LOG_LEVEL_INFO, "no error\n");
        let kept = since(start);
        assert_eq!(kept.lines().count(), KEPT);
        assert_eq!(kept.lines().last(), Some("error 39"));
        assert_eq!(&*since(mark()), "");
    }
}
