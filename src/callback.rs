//! Runs user code during a call into ggml: closures that C calls back, and the logger.
//!
//! User code must not re-enter ggml ([`forbid_reentry`]): thread-local state may give it access to tensors that are
//! being computed or allocated, so every call into ggml fails with [`Error::Nested`]. User code may read shapes and
//! names. It may also drop objects of this crate, because nothing else uses those.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::LocalKey;

use crate::error::{Error, Result};

/// A panic's payload.
pub(crate) type Panic = Box<dyn Any + Send>;

thread_local! {
    /// Whether this thread is running user code inside a call into ggml.
    static IN_USER_CODE: Cell<bool> = const { Cell::new(false) };

    /// Whether this thread has a `FAILURE`, which the current guarded call must report. This flag is faster to read.
    static FAILED: Cell<bool> = const { Cell::new(false) };
    static FAILURE: Cell<Option<Box<Error>>> = const { Cell::new(None) };

    /// Why a device rejects the graph that this thread plans.
    static REJECTION: Cell<Option<Box<Error>>> = const { Cell::new(None) };
}

/// Makes the guarded call that this thread is in fail with `error`, once C has returned. The first failure counts.
pub(crate) fn fail(error: Error) {
    keep_first(&FAILURE, error);
    FAILED.set(true);
}

fn keep_first(slot: &'static LocalKey<Cell<Option<Box<Error>>>>, error: Error) {
    // A thread that ends has no thread-local `slot` any more: `take_recorded` then says that the reason is lost.
    let _gone = slot.try_with(|slot| slot.set(Some(slot.take().unwrap_or_else(|| Box::new(error)))));
}

/// Lets the scheduler refuse the graph that this thread plans. Unlike [`fail`], this keeps the result of C's call,
/// which says whether the scheduler needs a repair (H21). The first rejection counts.
pub(crate) fn reject(error: Error) {
    keep_first(&REJECTION, error);
}

/// Fails with the error that [`reject`] recorded on this thread since the last call.
pub(crate) fn check_rejection() -> Result<()> {
    REJECTION.try_with(Cell::take).ok().flatten().map_or(Ok(()), |error| Err(*error))
}

/// The error that [`fail`] recorded on this thread.
#[inline]
pub(crate) fn take_failure() -> Option<Error> {
    FAILED.get().then(take_recorded)
}

#[cold]
fn take_recorded() -> Error {
    FAILED.set(false);
    let gone = || Error::DeviceFailed {
        call: "the end of a thread",
        device: "in Rust".into(),
        reason: "it failed while its thread was exiting, so the reason was not kept; see the log".into(),
    };
    FAILURE.try_with(Cell::take).ok().flatten().map_or_else(gone, |failure| *failure)
}

/// Marks this thread as running user code, or as not running it. The drop restores what was before.
struct ReentryScope(bool);

impl ReentryScope {
    fn set(in_user_code: bool) -> Self {
        Self(IN_USER_CODE.replace(in_user_code))
    }
}

impl Drop for ReentryScope {
    fn drop(&mut self) {
        IN_USER_CODE.set(self.0);
    }
}

/// Runs user code that must not call into ggml.
pub(crate) fn forbid_reentry<R>(f: impl FnOnce() -> R) -> R {
    let _scope = ReentryScope::set(true);
    f()
}

/// Lets this crate call into ggml inside [`forbid_reentry`], without user code: to read a result that C has just
/// reported, or in a context of its own.
pub(crate) fn allow_reentry<R>(f: impl FnOnce() -> R) -> R {
    let _scope = ReentryScope::set(false);
    f()
}

/// Runs user code inside a C callback, which no panic may cross. The caller must not drop the payload inside C either:
/// its destructor is user code, and may panic.
pub(crate) fn run<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(|| forbid_reentry(f)))
}

/// Leaks a panic's payload, whose destructor is user code and may panic inside C, or an object that an interrupted call
/// may still use.
pub(crate) fn forget<T>(object: T) {
    #[expect(clippy::mem_forget, reason = "that is what this is for")]
    std::mem::forget(object);
}

/// Fails in user code that runs inside [`forbid_reentry`]. Every guarded call checks this, as does any other change of
/// a C object.
#[inline]
pub(crate) fn check_reentry(call: &'static str) -> Result<()> {
    if IN_USER_CODE.get() { Err(Error::Nested { call }) } else { Ok(()) }
}

/// A closure that C calls back through a `void *`.
///
/// The first panic in the closure is kept. The closure is not called again, C is told to stop, and the panic resumes in
/// [`CallbackCell::finish`] or [`CallbackCell::resume`], after C has returned.
pub(crate) struct CallbackCell<F> {
    inner: RefCell<Inner<F>>,
}

struct Inner<F> {
    f: F,
    panic: Option<Panic>,
}

impl<F> CallbackCell<F> {
    pub(crate) fn new(f: F) -> Self {
        Self { inner: RefCell::new(Inner { f, panic: None }) }
    }

    /// Runs the closure through `call`, with re-entry forbidden. Returns `None`, which means that C must stop, after a
    /// panic and if the closure is running already.
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

    /// Resumes the closure's panic, if there was one; then it may be called again.
    pub(crate) fn resume(&self) {
        let panic = self.inner.try_borrow_mut().ok().and_then(|mut inner| inner.panic.take());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Ends the callback, and resumes its panic, if there was one.
    pub(crate) fn finish(self) {
        if let Some(panic) = self.inner.into_inner().panic {
            resume_unwind(panic);
        }
    }
}
