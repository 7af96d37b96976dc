//! ggml's log lines, handed to the [`log`](https://docs.rs/log) facade under the target `ggml`.
//!
//! The logger is user code. It gets its lines when the outermost C call of the thread has returned and no lock of this crate's
//! is held ([`Deferral`]), and it runs [closed](crate::callback::closed). Its panic is kept until what C did is written down:
//! it goes on at the end of a [public call](public), this one or the next of the thread.
//!
//! Warnings and errors are also kept for a moment, so that an [`Error`](crate::Error) can carry what ggml said during
//! the call that failed.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::panic::resume_unwind;

use ggml_sys as sys;

use crate::callback::{self, Panic};
use crate::error::Shown;

/// How many warnings and errors are kept per thread.
const KEPT: usize = 16;

#[derive(Default)]
struct Lines {
    /// A line that ggml has begun and not ended, with its level.
    partial: String,
    level: Option<::log::Level>,
    /// The last warnings and errors with their numbers.
    kept: Vec<(u64, String)>,
    /// Lines that the logger has not seen yet.
    queue: Vec<(::log::Level, String)>,
    /// How many more there were, for which there was no memory.
    lost: usize,
    /// A panic of the logger that has not gone on yet.
    panic: Option<Panic>,
}

impl Drop for Lines {
    /// A thread ends: a panic in here, which the payload's destructor may bring about, would end the process.
    fn drop(&mut self) {
        if let Some(panic) = self.panic.take() {
            callback::forget(panic);
        }
    }
}

// Only the first has a destructor. It is gone when other variables of the thread are dropped, which may log.
thread_local! {
    static LINES: RefCell<Lines> = const {
        RefCell::new(Lines {
            partial: String::new(),
            level: None,
            kept: Vec::new(),
            queue: Vec::new(),
            lost: 0,
            panic: None,
        })
    };
    /// The number of warnings and errors seen: read at each guarded call, hence apart.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// How many deferrals there are.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether lines wait for the logger.
    static QUEUED: Cell<bool> = const { Cell::new(false) };
    /// Whether there is a panic to go on with.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Does something with this thread's lines, unless they are gone because the thread ends.
fn with_lines<R>(f: impl FnOnce(&mut Lines) -> R) -> Option<R> {
    LINES.try_with(|lines| lines.try_borrow_mut().ok().map(|mut lines| f(&mut lines))).ok().flatten()
}

/// Marks a place in this thread's log.
#[inline]
pub(crate) fn mark() -> u64 {
    COUNT.get()
}

/// The warnings and errors that this thread logged since `mark`, a line each.
pub(crate) fn since(mark: u64) -> Box<str> {
    let join = |l: &mut Lines| {
        let lines: Vec<_> = l.kept.iter().filter(|(n, _)| *n > mark).map(|(_, s)| s.as_str()).collect();
        lines.join("\n").into()
    };
    with_lines(join).unwrap_or_default()
}

/// Keeps this thread's lines from the logger until the last deferral ends. Each guarded call has one, and so has each lock of
/// this crate's.
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
            // Still deferred: what the logger itself brings about comes after this line, not inside of it.
            deliver();
        }
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Hands the logger what waits for it. Never panics.
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
            hand_over(::log::Level::Warn, &format!("{lost} more lines were lost, for want of memory"));
        }
    }
}

/// Calls the logger, closed, with what a terminal obeys escaped: names from files are in there. Its panic must not cross C: the first one is kept, to go on later.
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

/// Logs a line of this crate's own, as one of ggml's.
pub(crate) fn say(level: ::log::Level, line: String) {
    let _deferral = Deferral::begin();
    queue(level, line);
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
    if let (None, Some(line)) = (queued, line) {
        hand_over(level, &line); // the thread ends, and keeps nothing any more
    }
}

/// Runs a public call that makes several calls into ggml: the logger gets its lines at the end, and its panic goes on from
/// there, when Rust has written down what C did. One that an earlier call left goes on before anything is done.
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
    // Outside of guarded calls, as on a thread of ggml's, the line is handed over at once.
    let _deferral = Deferral::begin();
    receive(level, &text);
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
        // Warnings and errors are about to be read by an error message: they don't wait for a line end.
        if l.level.is_some_and(|l| l <= ::log::Level::Warn) {
            l.flush();
        }
    });
    if known.is_none() {
        queue(level.unwrap_or(::log::Level::Info), text.trim_end().to_owned());
    }
}

impl Lines {
    /// Ends the line that was begun, if there is one.
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
