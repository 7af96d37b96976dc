//! Closures that C calls back during one call.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A closure for the length of one C call, reached through C's `void *`.
///
/// A panic in the closure is kept (the first one wins), the closure is not called again, C is told to stop, and the
/// panic goes on in [`State::finish`], after C has returned.
pub(crate) struct State<F> {
    inner: RefCell<Inner<F>>,
}

struct Inner<F> {
    f: F,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> State<F> {
    pub(crate) fn new(f: F) -> Self {
        Self { inner: RefCell::new(Inner { f, panic: None }) }
    }

    /// Runs the closure through `call`. `None` after a panic, now or before, and where C calls back from inside the
    /// closure: C is then to stop.
    pub(crate) fn run<R>(&self, call: impl FnOnce(&mut F) -> R) -> Option<R> {
        let mut inner = self.inner.try_borrow_mut().ok()?;
        if inner.panic.is_some() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut inner.f))) {
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
