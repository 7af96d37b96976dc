//! The lock for ggml's meta device code, which keeps tables without locks in its devices and in weight buffers.
//!
//! A computation on the CPU beside a meta device may call user code, which may wait for another thread. To avoid a
//! deadlock, that thread gets [`Error::Busy`] and doesn't wait for the computation.

#![expect(clippy::disallowed_types, reason = "a lock that waits on a condition, with a deferral of its own")]

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::device::is_meta;
use crate::callback;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::log::Deferral;

/// Who holds the lock for ggml's meta device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// Code of this crate that releases the lock without waiting for other threads.
    Library,
    /// A computation that may call user code.
    UserCode,
}

static HOLDER: Mutex<Holder> = Mutex::new(Holder::Nobody);
static RELEASED: Condvar = Condvar::new();

thread_local! {
    /// How often this thread holds the lock, which is reentrant.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

fn state() -> MutexGuard<'static, Holder> {
    HOLDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exclusive right to call ggml's meta device code. Log lines wait until it is dropped.
pub(crate) struct MetaLockGuard {
    /// Dropped last: the lock is released before the waiting log lines are delivered.
    _deferral: Deferral,
}

impl MetaLockGuard {
    /// Waits until no other thread has the lock. `calls_user_code` says whether user code may run while this thread
    /// holds the lock.
    pub(super) fn wait(call: &'static str, calls_user_code: bool) -> Result<Self> {
        callback::check_reentry(call)?;
        let deferral = Deferral::begin();
        if HELD.get() == 0 {
            let mut state = state();
            while *state == Holder::Library {
                state = RELEASED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if *state == Holder::UserCode {
                return Err(Error::Busy { call });
            }
            *state = if calls_user_code { Holder::UserCode } else { Holder::Library };
            drop(state);
            RELEASED.notify_all(); // waiting threads must learn that user code runs now
        }
        HELD.set(HELD.get() + 1);
        Ok(Self { _deferral: deferral })
    }
}

impl Drop for MetaLockGuard {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if HELD.get() == 0 {
            *state() = Holder::Nobody;
            RELEASED.notify_all();
        }
    }
}

/// Takes the lock if a meta device is among these devices.
///
/// # Errors
///
/// [`Error::Busy`] if another thread's computation may call user code; [`Error::Nested`] in user code.
pub(crate) fn lock_if_meta(
    call: &'static str,
    devices: impl Iterator<Item = Device>,
    calls_user_code: bool,
) -> Result<Option<MetaLockGuard>> {
    let (meta, driven) =
        devices.fold((false, false), |(meta, driven), d| (meta || is_meta(d), driven || d.is_driven()));
    if !meta {
        return Ok(None);
    }
    // User code may also be the implementation of a device in Rust.
    MetaLockGuard::wait(call, calls_user_code || driven).map(Some)
}
