//! Stops computations early.

use std::ffi::c_void;
use std::time::Instant;

use ggml_sys as sys;

use super::Backend;
use crate::callback::{self, CallbackCell};
use crate::error::{Error, Result};
use crate::log;

/// The closure that a CPU backend calls between operations, boxed at a stable address.
pub(super) struct Abort {
    state: Box<CallbackCell<Box<dyn FnMut() -> bool + Send>>>,
    /// Whether the closure is the user's. It may then wait for another thread.
    is_user_code: bool,
}

impl Backend {
    /// Calls `stop` before each operation; if it returns `true`, the computation ends there with [`Error::Cancelled`]
    /// (`ggml_backend_cpu_set_abort_callback`). Only CPU backends support this.
    ///
    /// `stop` runs on the computing thread, during the computation: every call into ggml fails there with
    /// [`Error::Nested`]. A panic in it stops the computation and resumes in the call of `compute`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// # let ctx = Context::new();
    ///
    /// let cancel = Arc::new(AtomicBool::new(false));
    /// let mut backend = Backend::cpu()?;
    /// backend.set_abort({
    ///     let cancel = Arc::clone(&cancel);
    ///     move || cancel.load(Ordering::Relaxed)
    /// })?;
    /// # let y = ctx.sqr(ctx.arange(0.0, 2.0, 1.0)?)?;
    /// # let graph = ctx.graph([y])?;
    /// # let mut sched = Sched::builder().backend(backend).build()?;
    /// # let mut run = sched.alloc(&graph)?;
    /// cancel.store(true, Ordering::Relaxed); // by another thread
    /// assert!(matches!(run.compute(), Err(Error::Cancelled)));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_backend_cpu_set_abort_callback")]
    #[doc(alias = "ggml_backend_set_abort_callback_t")]
    pub fn set_abort(&mut self, stop: impl FnMut() -> bool + Send + 'static) -> Result<()> {
        callback::check_reentry("Backend::set_abort")?;
        self.replace_abort(Box::new(stop), true)
    }

    fn replace_abort(&mut self, stop: Box<dyn FnMut() -> bool + Send>, is_user_code: bool) -> Result<()> {
        let abort = Abort { state: Box::new(CallbackCell::new(stop)), is_user_code };
        let user = (&raw const *abort.state).cast_mut().cast();
        // The former closure is dropped when C no longer refers to it, and outside the call, because its destructor may
        // panic.
        let former = log::public(|| -> Result<_> {
            self.install_abort(Some(on_abort), user)?;
            Ok(self.abort.replace(abort))
        })?;
        drop(former);
        Ok(())
    }

    /// Ends each computation that still runs at `deadline`, with [`Error::Cancelled`]; `None` removes the deadline.
    /// Replaces the closure of [`Backend::set_abort`].
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut backend = Backend::cpu()?;
    /// backend.set_deadline(Some(Instant::now() + Duration::from_secs(5)))?;
    /// backend.set_deadline(None)?;
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Backend::set_abort`].
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        callback::check_reentry("Backend::set_deadline")?;
        match deadline {
            Some(at) => self.replace_abort(Box::new(move || Instant::now() >= at), false),
            None => self.clear_abort(),
        }
    }

    /// Removes the abort closure and the deadline.
    ///
    /// # Errors
    ///
    /// As [`Backend::set_abort`].
    pub fn clear_abort(&mut self) -> Result<()> {
        callback::check_reentry("Backend::clear_abort")?;
        let former = log::public(|| -> Result<_> {
            self.install_abort(None, std::ptr::null_mut())?;
            Ok(self.abort.take())
        })?;
        drop(former);
        Ok(())
    }

    fn install_abort(&mut self, callback: sys::ggml_abort_callback, user: *mut c_void) -> Result<()> {
        let cpu = self.cpu_registry("Backend::set_abort")?;
        self.raw.set_abort(cpu, callback, user)
    }

    /// Whether computations call a user closure to decide whether to stop.
    pub(crate) fn asks_user_code(&self) -> bool {
        self.abort.as_ref().is_some_and(|abort| abort.is_user_code)
    }

    /// Resumes a panic of the abort closure. Called after a computation in which the backend took part.
    pub(crate) fn resume_abort(&self) {
        if let Some(abort) = &self.abort {
            abort.state.resume();
        }
    }
}

/// Turns the status that C returns for a computation into a result.
pub(crate) fn check_status(call: &'static str, status: sys::ggml_status) -> Result<()> {
    match status {
        sys::GGML_STATUS_SUCCESS => Ok(()),
        sys::GGML_STATUS_ABORTED => Err(Error::Cancelled),
        _ => Err(Error::Status { call, status, log: Box::default() }),
    }
}

/// # Safety
///
/// `user` must be the state of a live [`Abort`].
unsafe extern "C-unwind" fn on_abort(user: *mut c_void) -> bool {
    // SAFETY: `user` is live, by this function's `# Safety`, and only used through shared references.
    let state = unsafe { &*user.cast::<CallbackCell<Box<dyn FnMut() -> bool + Send>>>() };
    state.run(|stop| stop()).unwrap_or(true)
}
