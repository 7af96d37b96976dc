//! One thread at a time in ggml's code for meta devices, which keeps tables without locks, in its devices and in the buffers
//! of weights.
//!
//! A computation on the CPU beside a meta device may call user code, which may wait for another thread. So that thread must
//! not wait for the computation: it gets [`Error::Busy`] instead.

#![expect(clippy::disallowed_types, reason = "a lock that waits on a condition, with a deferral of its own")]

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::device::is_meta;
use crate::callback;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::log::Deferral;

/// Who uses meta devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Nobody,
    /// A thread that comes to an end by itself.
    Library,
    /// A computation that may call user code.
    UserCode,
}

static USE: Mutex<Use> = Mutex::new(Use::Nobody);
static RELEASED: Condvar = Condvar::new();

thread_local! {
    /// How often this thread has the lock: code of this crate's that has it may get here again.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

fn state() -> MutexGuard<'static, Use> {
    USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to call ggml about meta devices, until it is dropped. Log lines wait until then.
pub(crate) struct Alone {
    /// Dropped after this one's drop, which releases the lock.
    _deferral: Deferral,
}

impl Alone {
    /// Waits until no other thread has the lock. `calls_user_code`: whether user code may run while this has it.
    pub(super) fn wait(call: &'static str, calls_user_code: bool) -> Result<Self> {
        let deferral = Deferral::begin();
        if HELD.get() == 0 {
            let mut state = state();
            while *state == Use::Library {
                state = RELEASED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if *state == Use::UserCode {
                return Err(Error::Busy { call });
            }
            *state = if calls_user_code { Use::UserCode } else { Use::Library };
            drop(state);
            RELEASED.notify_all(); // those that wait learn what for
        }
        HELD.set(HELD.get() + 1);
        Ok(Self { _deferral: deferral })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if HELD.get() == 0 {
            *state() = Use::Nobody;
            RELEASED.notify_all();
        }
    }
}

/// Waits until no other thread uses meta devices, if one is among these.
///
/// # Errors
///
/// [`Error::Busy`] where another thread computes and may call user code meanwhile, [`Error::Nested`] in user code.
pub(crate) fn alone(
    call: &'static str,
    mut devices: impl Iterator<Item = Device>,
    calls_user_code: bool,
) -> Result<Option<Alone>> {
    if !devices.any(is_meta) {
        return Ok(None);
    }
    callback::check_open(call)?;
    Alone::wait(call, calls_user_code).map(Some)
}
