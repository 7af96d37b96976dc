//! What only Metal backends can do. A backend that is loaded while the program runs has no names for it.

use ggml_sys as sys;

use super::Backend;
use crate::error::{Error, Result};
use crate::guard;

impl Backend {
    /// Whether the GPU of a Metal backend belongs to the Apple family of this number, as Metal's feature set tables count
    /// them (`ggml_backend_metal_supports_family`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the backend is one of Metal.
    #[doc(alias = "ggml_backend_metal_supports_family")]
    pub fn supports_family(&self, family: u16) -> Result<bool> {
        self.check_metal("Backend::supports_family")?;
        guard::call("ggml_backend_metal_supports_family", || {
            // SAFETY: a live Metal backend (checked above). Metal takes any number.
            unsafe { sys::ggml_backend_metal_supports_family(self.as_ptr(), family.into()) }
        })
    }

    /// Lets Metal write the commands of the next computation to a file for Xcode
    /// (`ggml_backend_metal_capture_next_compute`). The process needs the environment variable `METAL_CAPTURE_ENABLED`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the backend is one of Metal.
    #[doc(alias = "ggml_backend_metal_capture_next_compute")]
    pub fn capture_next_compute(&mut self) -> Result<()> {
        self.check_metal("Backend::capture_next_compute")?;
        guard::call("ggml_backend_metal_capture_next_compute", || {
            // SAFETY: a live Metal backend (checked above), of which C sets a field.
            unsafe { sys::ggml_backend_metal_capture_next_compute(self.as_ptr()) }
        })
    }

    fn check_metal(&self, op: &'static str) -> Result<()> {
        self.check()?;
        // SAFETY: the backend is live; C compares what identifies its kind.
        if unsafe { sys::ggml_backend_is_metal(self.as_ptr()) } {
            return Ok(());
        }
        Err(Error::unsupported(op, [], self.device().name(), "only a Metal backend can do that"))
    }
}
