//! One thread at a time in ggml's code for meta devices, which keeps tables without locks, in its devices and in the buffers
//! of weights.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::device::is_meta;
use crate::device::Device;
use crate::error::Result;
use crate::guard;

static LOCK: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread has the lock: a logger that is called while it does may get here again.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// The right to call ggml about meta devices, until it is dropped. It must be released before code of the user's runs.
pub(crate) struct Alone(Option<MutexGuard<'static, ()>>);

impl Alone {
    /// Waits until no other thread has the lock.
    pub(super) fn wait() -> Self {
        if HELD.get() {
            return Self(None);
        }
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        HELD.set(true);
        Self(Some(lock))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.0.is_some() {
            HELD.set(false);
        }
    }
}

/// Waits until no other thread uses meta devices, if one is among these.
///
/// # Errors
///
/// [`Error::Nested`](crate::Error::Nested) in the closure of a custom operation: whoever computes it may have the lock.
pub(crate) fn alone(call: &'static str, mut devices: impl Iterator<Item = Device>) -> Result<Option<Alone>> {
    if !devices.any(is_meta) {
        return Ok(None);
    }
    guard::check_open(call)?;
    Ok(Some(Alone::wait()))
}
