//! Forwards ggml's log lines to the [`log`](https://docs.rs/log) facade, with target `ggml`.
//!
//! The logger is user code. It gets its lines once the thread's outermost C call has returned and no lock of this crate
//! is held ([`Deferral`]), and it [can't re-enter ggml](crate::callback::forbid_reentry). Its panic is kept until Rust
//! has recorded what C did. The panic resumes at the end of a [public call](public), this one or the thread's next one.
//!
//! The last warnings and errors are also kept, so that an [`Error`](crate::Error) has what ggml logged during the
//! failed call.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::panic::resume_unwind;

use ggml_sys as sys;

use crate::callback::{self, Panic};
use crate::error::Shown;

/// The number of warnings and errors kept per thread.
const KEPT: usize = 16;

#[derive(Default)]
struct Lines {
    /// An unfinished line of ggml, with its level.
    partial: String,
    level: Option<::log::Level>,
    /// The last warnings and errors, each with its number.
    kept: Vec<(u64, String)>,
    /// Lines to be delivered to the logger.
    queue: Vec<(::log::Level, String)>,
    /// The number of lines dropped because memory ran out.
    lost: usize,
    /// A panic of the logger that has not been resumed yet.
    panic: Option<Panic>,
}

impl Drop for Lines {
    /// A panic while a thread ends would end the process. The destructor of the kept panic's payload may panic, so the
    /// payload is leaked.
    fn drop(&mut self) {
        if let Some(panic) = self.panic.take() {
            callback::forget(panic);
        }
    }
}

// Among these thread-locals, only `LINES` has a destructor. Destructors of other thread-locals may log after it has
// run.
thread_local! {
    static LINES: RefCell<Lines> = RefCell::default();
    /// The number of warnings and errors so far. This is a separate cell, because each guarded call reads it.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// The number of active deferrals of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether lines of this thread wait for delivery.
    static QUEUED: Cell<bool> = const { Cell::new(false) };
    /// Whether a panic of the logger waits to be resumed.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` on this thread's lines, unless the thread is ending and has dropped them.
fn with_lines<R>(f: impl FnOnce(&mut Lines) -> R) -> Option<R> {
    LINES.try_with(|lines| lines.try_borrow_mut().ok().map(|mut lines| f(&mut lines))).ok().flatten()
}

/// A position in this thread's log.
#[inline]
pub(crate) fn mark() -> u64 {
    COUNT.get()
}

/// The warnings and errors that this thread logged since `mark`, one per line.
pub(crate) fn since(mark: u64) -> Box<str> {
    let join = |l: &mut Lines| {
        let lines: Vec<_> = l.kept.iter().filter(|(n, _)| *n > mark).map(|(_, s)| s.as_str()).collect();
        lines.join("\n").into()
    };
    with_lines(join).unwrap_or_default()
}

/// Defers this thread's log lines until the last deferral is dropped. Each guarded call has a deferral, and so has each
/// lock of this crate.
pub(crate) struct Deferral(PhantomData<*const ()>);

impl Deferral {
    #[inline]
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(PhantomData)
    }
}

impl Drop for Deferral {
    #[inline]
    fn drop(&mut self) {
        if DEPTH.get() == 1 && QUEUED.get() {
            // Log lines are still deferred here, so that lines which the logger itself causes come after those that it
            // gets now.
            deliver();
        }
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Delivers the waiting lines to the logger. Never panics.
#[cold]
fn deliver() {
    while QUEUED.replace(false) {
        let Some((lines, lost)) = with_lines(|l| (std::mem::take(&mut l.queue), std::mem::take(&mut l.lost))) else {
            return;
        };
        for (level, line) in lines {
            hand_over(level, &line);
        }
        if lost > 0 {
            hand_over(::log::Level::Warn, &format!("{lost} more log lines were lost because memory ran out"));
        }
    }
}

/// Calls the logger, which can't re-enter ggml. Control characters are escaped, because names from files may have
/// terminal sequences. A panic must not cross C: the first one is kept, to be resumed later.
fn hand_over(level: ::log::Level, line: &str) {
    if let Err(panic) = callback::run(|| ::log::log!(target: "ggml", level, "{}", Shown::text(line))) {
        let mut panic = Some(panic);
        with_lines(|l| {
            if l.panic.is_none() {
                l.panic = panic.take();
                PANICKED.set(true);
            }
        });
        panic.into_iter().for_each(callback::forget);
    }
}

/// Logs a line of this crate. The line has the same target as ggml's lines.
pub(crate) fn say(level: ::log::Level, line: String) {
    let _deferral = Deferral::begin();
    queue(level, line);
}

/// Logs what this crate did. If nobody listens at this level, `line` is not made.
#[inline]
pub(crate) fn note(level: ::log::Level, line: impl FnOnce() -> String) {
    if level <= ::log::STATIC_MAX_LEVEL && level <= ::log::max_level() {
        say(level, line());
    }
}

fn queue(level: ::log::Level, line: String) {
    let mut line = Some(line);
    let queued = with_lines(|l| {
        if l.queue.try_reserve(1).is_err() {
            l.lost += 1;
        } else {
            l.queue.extend(line.take().map(|line| (level, line)));
        }
        QUEUED.set(true);
    });
    // `queue` did nothing: the thread is ending, and has dropped its lines. The logger gets the line at once, except
    // inside of a call, where it must not run: then the line is lost.
    if let (None, Some(line), 1) = (queued, line, DEPTH.get()) {
        hand_over(level, &line);
    }
}

/// Runs a public call that makes several calls into ggml. The logger gets the call's lines at the end. If the logger
/// panics, the panic resumes there, after Rust has recorded what C did. A panic that an earlier call left resumes
/// before `f` runs.
#[inline]
pub(crate) fn public<R>(f: impl FnOnce() -> R) -> R {
    if PANICKED.get() {
        resume();
    }
    let deferral = Deferral::begin();
    let result = f();
    drop(deferral);
    if PANICKED.get() {
        resume();
    }
    result
}

#[cold]
fn resume() {
    if DEPTH.get() == 0
        && !std::thread::panicking()
        && let Some(panic) = with_lines(|l| l.panic.take()).flatten()
    {
        PANICKED.set(false);
        resume_unwind(panic);
    }
}

/// Makes ggml log through [`on_line`].
pub(crate) fn install() {
    // SAFETY: sets a global of ggml; `on_line` has the type that C expects and needs no user data that could dangle.
    unsafe { sys::ggml_log_set(Some(on_line), std::ptr::null_mut()) };
}

/// # Safety
///
/// `text` must be NULL or a C string; ggml's logger guarantees it.
unsafe extern "C-unwind" fn on_line(level: sys::ggml_log_level, text: *const c_char, _user: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: `text` is not NULL (checked above), and a C string, by this function's `# Safety`. It lives until this
    // function returns.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // Outside guarded calls, as on ggml's own threads, the drop of this deferral delivers the line at once.
    let _deferral = Deferral::begin();
    receive(level, &text);
}

/// Logs an error of this crate as a part of ggml's log, so that the error of the current call contains the line.
pub(crate) fn inside(line: &str) {
    let _deferral = Deferral::begin();
    receive(sys::GGML_LOG_LEVEL_ERROR, line);
}

/// Handles a piece of ggml's log: a part of a line, or several lines.
fn receive(level: sys::ggml_log_level, text: &str) {
    let level = match level {
        sys::GGML_LOG_LEVEL_ERROR => Some(::log::Level::Error),
        sys::GGML_LOG_LEVEL_WARN => Some(::log::Level::Warn),
        sys::GGML_LOG_LEVEL_INFO => Some(::log::Level::Info),
        sys::GGML_LOG_LEVEL_DEBUG => Some(::log::Level::Debug),
        sys::GGML_LOG_LEVEL_CONT => None, // continues the previous line
        _ => Some(::log::Level::Trace),
    };
    let known = with_lines(|l| {
        if let Some(level) = level {
            l.flush();
            l.level = Some(level);
        }
        for piece in text.split_inclusive('\n') {
            if l.partial.try_reserve(piece.len()).is_err() {
                l.lost += 1;
                continue;
            }
            l.partial.push_str(piece);
            if piece.ends_with('\n') {
                l.flush();
            }
        }
        // Warnings and errors don't wait for the end of a line: an error message may need them now.
        if l.level.is_some_and(|l| l <= ::log::Level::Warn) {
            l.flush();
        }
    });
    if known.is_none() {
        queue(level.unwrap_or(::log::Level::Info), text.trim_end().to_owned());
    }
}

impl Lines {
    /// Ends the unfinished line, if there is one.
    fn flush(&mut self) {
        let mut line = std::mem::take(&mut self.partial);
        line.truncate(line.trim_end().len());
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
            self.kept.push((n, line.clone()));
        }
        if level > ::log::max_level() {
            return;
        }
        if self.queue.try_reserve(1).is_err() {
            self.lost += 1;
        } else {
            self.queue.push((level, line));
        }
        QUEUED.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lines since the last call, through a logger shared by all tests of this crate.
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
    fn log_delivers_whole_lines() {
        let lines = lines();
        let deferral = Deferral::begin();
        receive(sys::GGML_LOG_LEVEL_INFO, "test: begun");
        receive(sys::GGML_LOG_LEVEL_CONT, " and gone on");
        receive(sys::GGML_LOG_LEVEL_CONT, " and ended\ntest: second\n");
        receive(sys::GGML_LOG_LEVEL_DEBUG, "test: not ended");
        receive(sys::GGML_LOG_LEVEL_WARN, "test: next");
        drop(deferral);
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
    fn log_keeps_only_the_last_warnings() {
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
