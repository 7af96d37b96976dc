//! Functions of Metal backends. A Metal backend that is loaded at run time doesn't offer them by name.

use ggml_sys as sys;

use super::Backend;
use crate::callback;
use crate::error::{Error, Result};
use crate::guard::guarded;

impl Backend {
    /// Whether the GPU of a Metal backend belongs to the Apple GPU family with this number in Metal's feature set
    /// tables (`ggml_backend_metal_supports_family`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless it is a Metal backend.
    #[doc(alias = "ggml_backend_metal_supports_family")]
    pub fn supports_family(&self, family: u16) -> Result<bool> {
        callback::check_reentry("Backend::supports_family")?;
        self.check_metal("Backend::supports_family")?;
        // SAFETY: the backend is a live Metal backend (`check_metal`). Metal accepts any number.
        unsafe { guarded!(call, sys::ggml_backend_metal_supports_family(self.as_ptr(), family.into())) }
    }

    /// Captures the commands of the next computation to a file for Xcode (`ggml_backend_metal_capture_next_compute`).
    /// The environment variable `METAL_CAPTURE_ENABLED` must be set.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless it is a Metal backend.
    #[doc(alias = "ggml_backend_metal_capture_next_compute")]
    pub fn capture_next_compute(&mut self) -> Result<()> {
        callback::check_reentry("Backend::capture_next_compute")?;
        self.check_metal("Backend::capture_next_compute")?;
        // SAFETY: the backend is a live Metal backend (`check_metal`); C sets a field.
        unsafe { guarded!(call, sys::ggml_backend_metal_capture_next_compute(self.as_ptr())) }
    }

    fn check_metal(&self, call: &'static str) -> Result<()> {
        self.check()?;
        // SAFETY: the backend is live; C compares its kind's identifier.
        if unsafe { sys::ggml_backend_is_metal(self.as_ptr()) } {
            return Ok(());
        }
        Err(Error::unsupported(call, [], self.device().name(), "only a Metal backend can do that"))
    }
}
