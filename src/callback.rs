//! User code that runs while a call into ggml is under way: closures that C calls back, and the logger.
//!
//! All of it runs [closed](closed): what it reaches through variables of its thread may be in the middle of being computed or
//! allocated, so every call into ggml fails there with [`Error::Nested`]. Reading shapes and names, and dropping, are
//! allowed: what is dropped has no other user.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::{Error, Result};

/// What a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

thread_local! {
    /// Whether this thread runs user code that ggml called.
    static CLOSED: Cell<bool> = const { Cell::new(false) };
}

/// Sets a thread's flag, and puts the former value back when it is dropped.
struct Set(bool);

impl Set {
    fn to(closed: bool) -> Self {
        Self(CLOSED.replace(closed))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        CLOSED.set(self.0);
    }
}

/// Runs user code that may not call into ggml.
pub(crate) fn closed<R>(f: impl FnOnce() -> R) -> R {
    let _set = Set::to(true);
    f()
}

/// Runs code of this crate inside of [`closed`] that may call into ggml: reading a result which C has just shown.
pub(crate) fn reopened<R>(f: impl FnOnce() -> R) -> R {
    let _set = Set::to(false);
    f()
}

/// [`closed`] inside of C, which a panic must not cross. The payload must not be dropped there either: its destructor is user
/// code, and may panic.
pub(crate) fn run<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(|| closed(f)))
}

/// Gives a panic's payload up without running its destructor.
pub(crate) fn forget(panic: Panic) {
    #[expect(clippy::mem_forget, reason = "its destructor is user code, and may panic inside C")]
    std::mem::forget(panic);
}

/// Fails inside of [`closed`]. Every guarded call asks this, and so does whatever changes C objects without one.
#[inline]
pub(crate) fn check_open(call: &'static str) -> Result<()> {
    if CLOSED.get() { Err(Error::Nested { call }) } else { Ok(()) }
}

/// A closure that C calls back, reached through C's `void *`.
///
/// A panic in the closure is kept (the first one wins), the closure is not called again, C is told to stop, and the
/// panic goes on in [`State::finish`] or [`State::resume`], after C has returned.
pub(crate) struct State<F> {
    inner: RefCell<Inner<F>>,
}

struct Inner<F> {
    f: F,
    panic: Option<Panic>,
}

impl<F> State<F> {
    pub(crate) fn new(f: F) -> Self {
        Self { inner: RefCell::new(Inner { f, panic: None }) }
    }

    /// Runs the closure through `call`, [closed](closed). `None` after a panic, now or before, and where C calls back from
    /// inside the closure: C is then to stop.
    pub(crate) fn run<R>(&self, call: impl FnOnce(&mut F) -> R) -> Option<R> {
        let mut inner = self.inner.try_borrow_mut().ok()?;
        if inner.panic.is_some() {
            return None;
        }
        match run(|| call(&mut inner.f)) {
            Ok(value) => Some(value),
            Err(panic) => {
                inner.panic = Some(panic);
                None
            }
        }
    }

    /// Goes on with the closure's panic, if there was one; after that it may be called again.
    pub(crate) fn resume(&self) {
        let panic = self.inner.try_borrow_mut().ok().and_then(|mut inner| inner.panic.take());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Ends the callback's life: goes on with its panic, if there was one.
    pub(crate) fn finish(self) {
        if let Some(panic) = self.inner.into_inner().panic {
            resume_unwind(panic);
        }
    }
}
