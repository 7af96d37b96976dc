//! Registries: the available backends, each with its devices.

use std::ffi::{CStr, c_void};
use std::mem::transmute_copy;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::named::named;
use super::{Device, vulkan};
use crate::callback;
use crate::debug::debug;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::lock::Lock;
use crate::{ffi, guard};

/// Locks ggml's lists of registries and devices, which are plain vectors, for reading or extending.
static LISTS: Lock<()> = Lock::new(());

/// Runs `f` with ggml's lists locked. The first read of the lists starts every backend.
pub(crate) fn locked<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    // ggml may run user code on a thread of its own. That thread must not wait here for the thread that called ggml.
    callback::check_reentry("Registry")?;
    guard::install()?;
    guard::check_cpu()?;
    let _lock = LISTS.lock();
    f()
}

/// The device or registry of `all` with this name, ignoring case.
pub(super) fn named<T: Copy>(what: &'static str, all: &[T], name_of: impl Fn(T) -> String, name: &str) -> Result<T> {
    let found = all.iter().copied().find(|&one| name_of(one).eq_ignore_ascii_case(name));
    let available = || all.iter().map(|&one| name_of(one).into()).collect();
    found.ok_or_else(|| Error::NoSuch { what, name: name.into(), available: available() })
}

pub(super) fn devices() -> Result<Vec<Device>> {
    locked(|| {
        // SAFETY: no arguments; `locked` holds the lock on the list.
        let n = unsafe { guarded!(call, sys::ggml_backend_dev_count()) }?;
        let mut all = Vec::with_capacity(n);
        for i in 0..n {
            // SAFETY: `i` is below the count, and the list can't shrink: `locked` holds its lock.
            let raw = unsafe { guarded!(call, sys::ggml_backend_dev_get(i)) }?;
            // SAFETY: `raw` is NULL, or a device of the registry, which is never freed.
            let Some(device) = (unsafe { Device::from_raw(raw) }) else { continue };
            if !device.is_vulkan() || vulkan::starts(device)? {
                all.push(device);
            }
        }
        Ok(all)
    })
}

/// A backend, such as `CPU`, `CUDA` or `RPC`, with its devices (`ggml_backend_reg_t`).
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::Registry;
/// let cpu = Registry::by_name("CPU")?;
/// assert_eq!(cpu.devices()?, [Device::cpu()?]);
/// for (feature, value) in cpu.features()? {
///     println!("{feature} = {value}"); // such as AVX2 = 1
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_reg_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registry(NonNull<sys::ggml_backend_reg>);

// SAFETY: registries are immutable objects that are never freed (docs/safety.md, "Threads").
unsafe impl Send for Registry {}
// SAFETY: registries are immutable, so threads can share them (docs/safety.md, "Threads").
unsafe impl Sync for Registry {}

impl Registry {
    /// # Safety
    ///
    /// `raw` must be NULL or a registry that is never freed.
    pub(crate) unsafe fn from_raw(raw: *mut sys::ggml_backend_reg) -> Option<Self> {
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
        callback::check_reentry("Registry::all")?;
        locked(|| {
            // SAFETY: no arguments; `locked` holds the lock on the list.
            let n = unsafe { guarded!(call, sys::ggml_backend_reg_count()) }?;
            // SAFETY: `i` is below the count, and the list can't shrink: `locked` holds its lock.
            let get = |i| unsafe { guarded!(call, sys::ggml_backend_reg_get(i)) };
            (0..n).filter_map(|i| get(i).map(|raw| NonNull::new(raw).map(Self)).transpose()).collect()
        })
    }

    /// The registry with this name, ignoring case (`ggml_backend_reg_by_name`).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the existing names; else as [`Device::all`].
    #[doc(alias = "ggml_backend_reg_by_name")]
    pub fn by_name(name: &str) -> Result<Self> {
        callback::check_reentry("Registry::by_name")?;
        let all = Self::all()?;
        named("registry", &all, Self::name, name)
    }

    /// The features that the backend was compiled for and the machine has, such as `AVX2` or `ARCHS`, as names and
    /// values (`ggml_backend_get_features_t`). Empty if the backend doesn't report any.
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] if the backend fails.
    #[doc(alias = "ggml_backend_get_features_t")]
    pub fn features(self) -> Result<Vec<(String, String)>> {
        callback::check_reentry("Registry::features")?;
        let Some(get) = self.find(named!(c"ggml_backend_get_features" as ggml_backend_get_features_t)) else {
            return Ok(Vec::new());
        };
        let first = guard::call("ggml_backend_get_features", || {
            // SAFETY: the function is this registry's, which is never freed; neither is the list, which is made once.
            unsafe { get(self.0.as_ptr()) }
        })?;
        // SAFETY: the list is made once, never freed, and ends with NULL as a name.
        let all = unsafe { ffi::entries(first, |feature| feature.name.is_null()) };
        // SAFETY: a C string in a list that is never freed.
        let text = |text| unsafe { ffi::string(text) };
        Ok(all.into_iter().map(|feature| (text(feature.name), text(feature.value))).collect())
    }

    /// The name (`ggml_backend_reg_name`).
    #[doc(alias = "ggml_backend_reg_name")]
    pub fn name(self) -> String {
        // SAFETY: registries and their names are never freed.
        unsafe { ffi::text_of(sys::ggml_backend_reg_name, self.0.as_ptr()) }
    }

    /// The devices of this registry. (ggml's enumeration of one registry aborts for RPC, so this filters the list of
    /// all devices.)
    ///
    /// # Errors
    ///
    /// As [`Device::all`].
    #[doc(alias = "ggml_backend_reg_dev_count")]
    #[doc(alias = "ggml_backend_reg_dev_get")]
    pub fn devices(self) -> Result<Vec<Device>> {
        callback::check_reentry("Registry::devices")?;
        Ok(devices()?.into_iter().filter(|d| d.registry() == Some(self)).collect())
    }

    /// A backend's function beyond the common interface, by name, if it has one (`ggml_backend_reg_get_proc_address`).
    ///
    /// # Safety
    ///
    /// `F` must be the type of a pointer to that function.
    #[doc(alias = "ggml_backend_reg_get_proc_address")]
    pub unsafe fn find_function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "`F` must be a function pointer") };
        // SAFETY: registries are never freed; the name lives during the call, which only compares it.
        let raw = unsafe { sys::ggml_backend_reg_get_proc_address(self.0.as_ptr(), name.as_ptr()) };
        // SAFETY: `raw` is not NULL, and points to a function of type `F`, by this function's `# Safety`.
        NonNull::new(raw).map(|raw| unsafe { transmute_copy::<NonNull<c_void>, F>(&raw) })
    }
}

debug!(Registry(name));
