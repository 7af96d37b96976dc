//! How far long work is, on a terminal.

use std::io::{IsTerminal as _, Write as _};

/// A line that says how many percent are done. It goes when this is dropped.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    terminal: bool,
    shown: u64,
}

impl Progress {
    /// Nothing is shown yet; `what` is being done.
    pub fn new(what: &'static str) -> Self {
        Self { what, terminal: std::io::stderr().is_terminal(), shown: 0 }
    }

    /// Shows how much is done.
    pub fn show(&mut self, done: u64, total: u64) {
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100);
        if self.terminal && percent != self.shown {
            self.shown = percent;
            // Progress is of no use to anybody if it can't be written.
            let _unwritten = write!(std::io::stderr(), "\r{}: {percent} %", self.what).is_err();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown > 0 {
            let _unwritten = write!(std::io::stderr(), "\r\x1b[K").is_err();
        }
    }
}
