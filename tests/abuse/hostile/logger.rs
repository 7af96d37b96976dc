//! The process's logger, which is code of the program's.

use std::cell::Cell;

use log::{LevelFilter, Log, Metadata, Record};

use super::stage::{Place, inside};

struct Logger;

thread_local! {
    /// How many lines this thread has logged.
    static LINES: Cell<u64> = const { Cell::new(0) };
    /// Whether the next line panics, in threads without a stage.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LINES.set(LINES.get() + 1);
        drop(record.args().to_string());
        if PANICS.take() {
            std::panic::resume_unwind(Box::new("a logger's"));
        }
        inside(Place::Logger);
    }

    fn flush(&self) {}
}

/// Makes it the process's.
pub(crate) fn install() {
    // Another thread may have been quicker.
    let _is = log::set_logger(&Logger).is_ok();
    log::set_max_level(LevelFilter::Trace);
}

pub(super) fn lines() -> u64 {
    LINES.get()
}

/// The next line panics.
pub(super) fn panic_next() {
    PANICS.set(true);
}

/// Whether the panic has not been yet.
pub(super) fn calm() -> bool {
    PANICS.take()
}
