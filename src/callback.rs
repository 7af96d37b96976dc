//! Runs user code during a call into ggml: closures that C calls back, and the logger.
//!
//! All of it runs [closed](closed): thread-local state may give it access to tensors that are being computed or
//! allocated, so every call into ggml fails with [`Error::Nested`]. Reading shapes and names is allowed, and so is
//! dropping: nothing else uses what is dropped.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::LocalKey;

use crate::error::{Error, Result};

/// A panic's payload.
pub(crate) type Panic = Box<dyn Any + Send>;

thread_local! {
    /// Whether this thread is running user code inside a call into ggml.
    static CLOSED: Cell<bool> = const { Cell::new(false) };

    /// Whether this thread has a failure that the current guarded call must report. Avoids reading it.
    static FAILED: Cell<bool> = const { Cell::new(false) };
    static FAILURE: Cell<Option<Box<Error>>> = const { Cell::new(None) };

    /// What a device said against the graph that this thread plans.
    static OBJECTION: Cell<Option<Box<Error>>> = const { Cell::new(None) };
}

/// Makes the guarded call that this thread is in fail with `error`, once C has returned. The first failure counts.
pub(crate) fn fail(error: Error) {
    keep_first(&FAILURE, error);
    FAILED.set(true);
}

fn keep_first(slot: &'static LocalKey<Cell<Option<Box<Error>>>>, error: Error) {
    // A thread that ends has no such variable any more: `take_recorded` makes up for it.
    let _gone = slot.try_with(|slot| slot.set(Some(slot.take().unwrap_or_else(|| Box::new(error)))));
}

/// Lets the scheduler refuse the graph that this thread plans. Unlike [`fail`], this keeps the result of C's call, which
/// says whether the scheduler needs a repair (H21). The first objection counts.
pub(crate) fn object(error: Error) {
    keep_first(&OBJECTION, error);
}

/// Fails with what [`object`] recorded on this thread since the last call.
pub(crate) fn check_objection() -> Result<()> {
    OBJECTION.try_with(Cell::take).ok().flatten().map_or(Ok(()), |error| Err(*error))
}

/// What [`fail`] recorded on this thread.
#[inline]
pub(crate) fn take_failure() -> Option<Error> {
    FAILED.get().then(take_recorded)
}

#[cold]
fn take_recorded() -> Error {
    FAILED.set(false);
    let gone =
        || Error::DeviceFailed { call: "", device: "".into(), reason: "as its log says: this thread ends".into() };
    FAILURE.try_with(Cell::take).ok().flatten().map_or_else(gone, |failure| *failure)
}

/// Sets the thread's flag, and restores it on drop.
struct ClosedScope(bool);

impl ClosedScope {
    fn set(closed: bool) -> Self {
        Self(CLOSED.replace(closed))
    }
}

impl Drop for ClosedScope {
    fn drop(&mut self) {
        CLOSED.set(self.0);
    }
}

/// Runs user code that must not call into ggml.
pub(crate) fn closed<R>(f: impl FnOnce() -> R) -> R {
    let _scope = ClosedScope::set(true);
    f()
}

/// Lets this crate call into ggml inside [`closed`], to read a result that C has just reported.
pub(crate) fn reopened<R>(f: impl FnOnce() -> R) -> R {
    let _scope = ClosedScope::set(false);
    f()
}

/// Runs user code inside a C callback, which no panic may cross. The caller must not drop the payload inside C either:
/// its destructor is user code, and may panic.
pub(crate) fn run<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(|| closed(f)))
}

/// Leaks a panic's payload instead of running its destructor.
pub(crate) fn forget(panic: Panic) {
    #[expect(clippy::mem_forget, reason = "its destructor is user code, and may panic inside C")]
    std::mem::forget(panic);
}

/// Fails inside [`closed`]. Every guarded call checks this, as does any other change of a C object.
#[inline]
pub(crate) fn check_open(call: &'static str) -> Result<()> {
    if CLOSED.get() { Err(Error::Nested { call }) } else { Ok(()) }
}

/// A closure that C calls back through a `void *`.
///
/// The first panic in the closure is kept. The closure is not called again, C is told to stop, and the panic resumes in
/// [`State::finish`] or [`State::resume`], after C has returned.
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

    /// Runs the closure through `call`, [closed](closed). Returns `None`, which means that C must stop, after a panic
    /// and if the closure is running already.
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
