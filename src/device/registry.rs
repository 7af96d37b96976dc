//! Registries: the backends that are linked in, each with its devices.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use ggml_sys as sys;

use super::Device;
use crate::error::Result;
use crate::{ffi, guard};

/// ggml's lists of registries and devices are plain vectors: whoever reads or extends them holds this.
static LISTS: Mutex<()> = Mutex::new(());

/// Runs `f`, which reads or extends ggml's lists, alone. The first such call starts every backend.
pub(crate) fn locked<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    guard::check_cpu()?;
    guard::install();
    let _lock = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    f()
}

pub(super) fn devices() -> Result<Vec<Device>> {
    locked(|| {
        let n = guard::call("ggml_backend_dev_count", || {
            // SAFETY: no arguments; we hold the lock over the list.
            unsafe { sys::ggml_backend_dev_count() }
        })?;
        let mut all = Vec::with_capacity(n);
        for i in 0..n {
            let raw = guard::call("ggml_backend_dev_get", || {
                // SAFETY: `i` is below the count, and the list can't shrink: we hold its lock.
                unsafe { sys::ggml_backend_dev_get(i) }
            })?;
            // SAFETY: devices of the registry are never freed.
            all.extend(unsafe { Device::from_raw(raw) });
        }
        Ok(all)
    })
}

/// A backend that is linked in, such as `CPU`, `CUDA` or `RPC`, with its devices (`ggml_backend_reg_t`).
#[doc(alias = "ggml_backend_reg_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registry(NonNull<sys::ggml_backend_reg>);

// SAFETY: registries are immutable objects that live as long as the process (docs/safety.md, "Threads").
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

impl Registry {
    /// # Safety
    ///
    /// `raw` must be NULL or a registry that is never freed.
    pub(super) unsafe fn from_raw(raw: *mut sys::ggml_backend_reg) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// All registries (`ggml_backend_reg_count`, `ggml_backend_reg_get`).
    ///
    /// # Errors
    ///
    /// As [`Device::all`].
    #[doc(alias = "ggml_backend_reg_count")]
    #[doc(alias = "ggml_backend_reg_get")]
    pub fn all() -> Result<Vec<Self>> {
        locked(|| {
            let n = guard::call("ggml_backend_reg_count", || {
                // SAFETY: no arguments; we hold the lock over the list.
                unsafe { sys::ggml_backend_reg_count() }
            })?;
            let mut all = Vec::with_capacity(n);
            for i in 0..n {
                let raw = guard::call("ggml_backend_reg_get", || {
                    // SAFETY: `i` is below the count, and the list can't shrink: we hold its lock.
                    unsafe { sys::ggml_backend_reg_get(i) }
                })?;
                all.extend(NonNull::new(raw).map(Self));
            }
            Ok(all)
        })
    }

    /// The name (`ggml_backend_reg_name`).
    #[doc(alias = "ggml_backend_reg_name")]
    pub fn name(self) -> String {
        // SAFETY: registries live for ever; the text is copied at once.
        let text = unsafe { sys::ggml_backend_reg_name(self.0.as_ptr()) };
        // SAFETY: a C string or NULL, see above.
        unsafe { ffi::string(text) }
    }

    /// The devices of this registry. (ggml's own enumeration of one registry aborts for RPC, so this filters the list of
    /// all devices.)
    ///
    /// # Errors
    ///
    /// As [`Device::all`].
    pub fn devices(self) -> Result<Vec<Device>> {
        Ok(devices()?.into_iter().filter(|d| d.registry() == Some(self)).collect())
    }

    /// A function that this backend offers beside the common interface, by name (`ggml_backend_reg_get_proc_address`).
    pub(crate) fn proc_address(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the registry lives for ever, the name during the call, which only compares it.
        let raw = unsafe { sys::ggml_backend_reg_get_proc_address(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(raw)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry({})", self.name())
    }
}
