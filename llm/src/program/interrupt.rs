//! Ctrl-C stops an answer, not the program.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

static SEEN: AtomicBool = AtomicBool::new(false);

/// From now on, Ctrl-C is only noted. Twice without an answer in between ends the program.
#[expect(clippy::exit, reason = "as Ctrl-C does without this handler")]
pub(crate) fn catch() -> Result<()> {
    Ok(ctrlc::set_handler(|| {
        if SEEN.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?)
}

/// Whether Ctrl-C came since [`forget`].
pub(crate) fn seen() -> bool {
    SEEN.load(Ordering::Relaxed)
}

/// An answer begins.
pub(crate) fn forget() {
    SEEN.store(false, Ordering::Relaxed);
}
