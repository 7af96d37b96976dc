//! This crate's locks. A thread that holds one runs no user code: log lines wait until it is released.

#![expect(clippy::disallowed_types, reason = "the one place for it")]

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::log::Deferral;

/// A mutex whose guard defers log lines. A panic doesn't poison the mutex, since no invariant spans more than one
/// write.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

/// The guard that [`Lock::lock`] returns.
pub(crate) struct Held<'a, T> {
    // Field order is drop order: the lock is released before log lines are delivered.
    guard: MutexGuard<'a, T>,
    _deferral: Deferral,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Takes the lock if no thread has it; else returns `None`.
    #[cfg_attr(not(feature = "rpc"), expect(dead_code, reason = "only the relay asks"))]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        let deferral = Deferral::begin();
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { guard, _deferral: deferral })
    }

    /// Takes the lock, after waiting for it.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        let deferral = Deferral::begin();
        Held { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _deferral: deferral }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
