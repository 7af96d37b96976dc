//! Loads backends at run time (feature `dynamic-backends`).

use std::ffi::CString;
use std::path::Path;

use ggml_sys as sys;

use super::driven;
use super::registry::{self, Registry};
use crate::callback;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::log;

impl Registry {
    /// Loads all backends that were built with this crate, choosing the best CPU variant for this machine, and returns
    /// all registries (`ggml_backend_load_all`). It loads nothing if any function has loaded backends before. Devices
    /// in Rust don't count as loaded backends.
    ///
    /// Without the feature `dynamic-backends`, backends are linked in, and this only lists them. So a program that
    /// begins with this call works either way.
    ///
    /// Unlike ggml's own function it looks into no folder but the one that the build installed them into
    /// ([`BACKEND_DIR`](sys::BACKEND_DIR)); a program that is shipped uses [`Registry::load_all_from`].
    ///
    /// # Errors
    ///
    /// [`Error::File`] where the folder is gone; else as [`Registry::all`].
    #[doc(alias = "ggml_backend_load_all")]
    pub fn load_all() -> Result<Vec<Self>> {
        callback::check_reentry("Registry::load_all")?;
        let Some(folder) = sys::BACKEND_DIR else { return Self::all() };
        let folder = Path::new(folder);
        if let Err(error) = folder.read_dir() {
            return Err(Error::File { path: folder.display().to_string().into(), source: error.into() });
        }
        if Self::all()?.into_iter().all(driven::is_registry) {
            // SAFETY: the folder contains only this crate's own build of ggml's backends.
            unsafe { Self::load_all_from(folder) }?;
        }
        Self::all()
    }

    /// Loads the backends in a folder, of each kind the variant that suits the machine best
    /// (`ggml_backend_load_all_from_path`). Backends that fail to load are skipped; [`Registry::all`] lists the result,
    /// and a line of the log at `debug` has their names. [`Registry::load`] of a file says why it fails.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] unless the path is UTF-8 without NUL; [`Error::Ggml`] or [`Error::Exception`] if ggml fails.
    ///
    /// # Safety
    ///
    /// Loading a library runs its code: all libraries in the folder must be backends of this version of ggml. So must
    /// the one that the environment variable `GGML_BACKEND_PATH` names, if it is set.
    #[doc(alias = "ggml_backend_load_all_from_path")]
    pub unsafe fn load_all_from(folder: impl AsRef<Path>) -> Result<()> {
        callback::check_reentry("Registry::load_all_from")?;
        let path = c_path("Registry::load_all_from", folder.as_ref())?;
        registry::locked(|| {
            // SAFETY: the path lives during the call; `locked` holds the lock on ggml's lists. All libraries are this
            // ggml's, by this function's `# Safety`.
            unsafe { guarded!(call, sys::ggml_backend_load_all_from_path(path.as_ptr())) }
        })?;
        log::note(::log::Level::Debug, || {
            let names: Vec<_> = Self::all().into_iter().flatten().map(Self::name).collect();
            format!("backends after loading those in {}: {}", folder.as_ref().display(), names.join(", "))
        });
        Ok(())
    }

    /// Loads one backend from a file (`ggml_backend_load`).
    ///
    /// # Errors
    ///
    /// [`Error::Null`] with ggml's log if it can't be loaded; [`Error::Param`] unless the path is UTF-8 without NUL.
    ///
    /// # Safety
    ///
    /// Loading a library runs its code: it must be a backend of this version of ggml.
    #[doc(alias = "ggml_backend_load")]
    pub unsafe fn load(file: impl AsRef<Path>) -> Result<Self> {
        callback::check_reentry("Registry::load")?;
        let path = c_path("Registry::load", file.as_ref())?;
        registry::locked(|| {
            let mark = log::mark();
            // SAFETY: the path lives during the call; `locked` holds the lock on ggml's lists. The library is this
            // ggml's, by this function's `# Safety`.
            let raw = unsafe { guarded!(call, sys::ggml_backend_load(path.as_ptr())) }?;
            // SAFETY: the result is NULL, or a registry that stays until `unload`, whose caller guarantees that the
            // registry is unused.
            unsafe { Self::from_raw(raw) }
                .ok_or_else(|| Error::Null { call: "ggml_backend_load", log: log::since(mark) })
        })
    }

    /// Removes a backend loaded at run time and its devices from ggml's lists, and unloads its library
    /// (`ggml_backend_unload`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] if ggml fails.
    ///
    /// # Safety
    ///
    /// Nothing of this backend may be used any more, in any thread: neither this handle and its copies nor its devices,
    /// buffer types, backends, buffers, tensors in them, and [`Pinned`](crate::Pinned) memory.
    #[doc(alias = "ggml_backend_unload")]
    pub unsafe fn unload(self) -> Result<()> {
        callback::check_reentry("Registry::unload")?;
        registry::locked(|| {
            // SAFETY: the registry is on ggml's list, locked by `locked`; nothing of it is in use, by this function's
            // `# Safety`.
            unsafe { guarded!(call, sys::ggml_backend_unload(self.as_ptr())) }
        })
    }
}

fn c_path(call: &'static str, path: &Path) -> Result<CString> {
    path.to_str()
        .and_then(|text| CString::new(text).ok())
        .ok_or_else(|| Error::param(call, "path", path.display().to_string(), "it must be UTF-8 without a NUL"))
}
