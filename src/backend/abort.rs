//! Stopping a computation from outside.

use std::ffi::c_void;
use std::time::Instant;

use ggml_sys as sys;

use super::Backend;
use crate::callback::State;
use crate::error::{Error, Result};
use crate::log;

/// The closure that a CPU backend asks between operations, at an address that stays.
pub(super) struct Abort {
    state: Box<State<Box<dyn FnMut() -> bool + Send>>>,
    /// Whether it is user code, which may wait for another thread.
    is_user_code: bool,
}

impl Backend {
    /// Asks `stop` before each operation of a computation whether to end it there, which then fails with
    /// [`Error::Cancelled`] (`ggml_backend_cpu_set_abort_callback`). Only a CPU backend can be asked to stop.
    ///
    /// `stop` runs on the thread that computes, in the midst of it: there, every call into ggml fails with
    /// [`Error::Nested`]. A panic in it stops the computation and goes on in the call of `compute`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_backend_cpu_set_abort_callback")]
    #[doc(alias = "ggml_backend_set_abort_callback_t")]
    pub fn set_abort(&mut self, stop: impl FnMut() -> bool + Send + 'static) -> Result<()> {
        self.replace_abort(Box::new(stop), true)
    }

    fn replace_abort(&mut self, stop: Box<dyn FnMut() -> bool + Send>, is_user_code: bool) -> Result<()> {
        let abort = Abort { state: Box::new(State::new(stop)), is_user_code };
        let user = (&raw const *abort.state).cast_mut().cast();
        // The former closure goes only when C does not know it any more; its destructor may panic.
        let former = log::public(|| {
            self.install_abort(Some(on_abort), user)?;
            Ok(self.abort.replace(abort))
        })?;
        drop(former);
        Ok(())
    }

    /// Ends every computation that is still running at `deadline`, which then fails with [`Error::Cancelled`]; `None`
    /// lets them run. Replaces [`Backend::set_abort`]'s closure.
    ///
    /// # Errors
    ///
    /// As [`Backend::set_abort`].
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        match deadline {
            Some(at) => self.replace_abort(Box::new(move || Instant::now() >= at), false),
            None => self.clear_abort(),
        }
    }

    /// Lets computations run to their end again.
    ///
    /// # Errors
    ///
    /// As [`Backend::set_abort`].
    pub fn clear_abort(&mut self) -> Result<()> {
        let former = log::public(|| {
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

    /// Whether computations ask user code whether to stop.
    pub(crate) fn asks_user_code(&self) -> bool {
        self.abort.as_ref().is_some_and(|abort| abort.is_user_code)
    }

    /// To be called after a computation in which the backend took part: goes on with a panic of the closure.
    pub(crate) fn resume_abort(&self) {
        if let Some(abort) = &self.abort {
            abort.state.resume();
        }
    }
}

/// What the status of a computation means.
pub(crate) fn check_status(call: &'static str, status: sys::ggml_status) -> Result<()> {
    match status {
        sys::GGML_STATUS_SUCCESS => Ok(()),
        sys::GGML_STATUS_ABORTED => Err(Error::Cancelled),
        _ => Err(Error::Status { call, status, log: Box::default() }),
    }
}

/// # Safety
///
/// `user` must be the state of an [`Abort`] that lives.
unsafe extern "C-unwind" fn on_abort(user: *mut c_void) -> bool {
    // SAFETY: live by contract, and only reached through shared references.
    let state = unsafe { &*user.cast::<State<Box<dyn FnMut() -> bool + Send>>>() };
    state.run(|stop| stop()).unwrap_or(true)
}
