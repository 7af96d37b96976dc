//! Registries: the backends that are linked in, each with its devices.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem::transmute_copy;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::named::named;
use super::{Device, vulkan};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::{ffi, guard};

/// ggml's lists of registries and devices are plain vectors: whoever reads or extends them holds this.
static LISTS: Lock<()> = Lock::new(());

/// Runs `f`, which reads or extends ggml's lists, alone. The first such call starts every backend.
pub(crate) fn locked<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    guard::install()?;
    guard::check_cpu()?;
    let _lock = LISTS.lock();
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
            let Some(device) = (unsafe { Device::from_raw(raw) }) else { continue };
            if !device.is_vulkan() || vulkan::starts(device)? {
                all.push(device);
            }
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

    pub(super) fn as_ptr(self) -> *mut sys::ggml_backend_reg {
        self.0.as_ptr()
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

    /// The registry with this name; case does not matter (`ggml_backend_reg_by_name`).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the names there are; else as [`Device::all`].
    #[doc(alias = "ggml_backend_reg_by_name")]
    pub fn by_name(name: &str) -> Result<Self> {
        let all = Self::all()?;
        all.iter().copied().find(|r| r.name().eq_ignore_ascii_case(name)).ok_or_else(|| Error::NoSuch {
            what: "registry",
            name: name.into(),
            available: all.iter().map(|r| r.name().into()).collect(),
        })
    }

    /// What the backend was built with and the machine has, such as `AVX2` or `ARCHS`, as pairs of a name and a value
    /// (`ggml_backend_get_features_t`). Empty for backends that don't tell.
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] where the backend fails.
    #[doc(alias = "ggml_backend_get_features_t")]
    pub fn features(self) -> Result<Vec<(String, String)>> {
        let Some(get) = self.find(named!(c"ggml_backend_get_features" as ggml_backend_get_features_t)) else {
            return Ok(Vec::new());
        };
        let first = guard::call("ggml_backend_get_features", || {
            // SAFETY: the registry lives for ever; the list is made once and lives as long.
            unsafe { get(self.0.as_ptr()) }
        })?;
        let mut all = Vec::new();
        let mut at = NonNull::new(first);
        while let Some(pair) = at {
            // SAFETY: an entry of a list that lives for ever and ends with one without a name, which we have not passed.
            let feature = unsafe { pair.read() };
            if feature.name.is_null() {
                break;
            }
            // SAFETY: C strings that live as long as the list.
            let name = unsafe { ffi::string(feature.name) };
            // SAFETY: as above.
            let value = unsafe { ffi::string(feature.value) };
            all.push((name, value));
            // SAFETY: this entry is not the last one, so the list goes on.
            at = Some(unsafe { pair.add(1) });
        }
        Ok(all)
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
    #[doc(alias = "ggml_backend_reg_dev_count")]
    #[doc(alias = "ggml_backend_reg_dev_get")]
    pub fn devices(self) -> Result<Vec<Device>> {
        Ok(devices()?.into_iter().filter(|d| d.registry() == Some(self)).collect())
    }

    /// A function that this backend offers beside the common interface, by name (`ggml_backend_reg_get_proc_address`), if
    /// it has one.
    ///
    /// # Safety
    ///
    /// `F` must be the type of a pointer to that function.
    #[doc(alias = "ggml_backend_reg_get_proc_address")]
    pub unsafe fn find_function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer is as large as any") };
        // SAFETY: the registry lives for ever, the name during the call, which only compares it.
        let raw = unsafe { sys::ggml_backend_reg_get_proc_address(self.0.as_ptr(), name.as_ptr()) };
        // SAFETY: a pointer to a function of this type, by contract.
        NonNull::new(raw).map(|raw| unsafe { transmute_copy::<NonNull<c_void>, F>(&raw) })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry({})", self.name())
    }
}
