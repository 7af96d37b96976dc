//! Backends that are loaded while the program runs (feature `dynamic-backends`).

use std::ffi::CString;
use std::path::Path;

use ggml_sys as sys;

use super::registry::{self, Registry};
use crate::error::{Error, Result};
use crate::{guard, log};

impl Registry {
    /// Loads all backends that were built with this crate, for the CPU the variant that suits the processor, and lists
    /// the registries there are then (`ggml_backend_load_all`). Calling it again loads nothing twice.
    ///
    /// Where backends are linked in, without the feature `dynamic-backends`, there is nothing to load: it lists those. So
    /// a program that begins with it works either way.
    ///
    /// Unlike ggml's own function it looks into no folder but the one that the build installed them into
    /// ([`BACKEND_DIR`](sys::BACKEND_DIR)); a program that is shipped uses [`Registry::load_all_from`].
    ///
    /// # Errors
    ///
    /// [`Error::File`] where the folder is gone; else as [`Registry::all`].
    #[doc(alias = "ggml_backend_load_all")]
    pub fn load_all() -> Result<Vec<Self>> {
        let Some(folder) = sys::BACKEND_DIR else { return Self::all() };
        let folder = Path::new(folder);
        if !folder.is_dir() {
            return Err(Error::File {
                path: folder.display().to_string().into(),
                reason: "there is no such folder".into(),
            });
        }
        if Self::all()?.is_empty() {
            // SAFETY: the folder is where this crate's own build put them.
            unsafe { Self::load_all_from(folder) }?;
        }
        Self::all()
    }

    /// Loads the backends in a folder: of each kind the variant that suits the machine best
    /// (`ggml_backend_load_all_from_path`). Those that can't be loaded are passed over; [`Registry::all`] lists what is
    /// there.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for a path that C can't take; [`Error::Ggml`] or [`Error::Exception`] where ggml fails.
    ///
    /// # Safety
    ///
    /// Loading a library runs it: all in the folder must be backends of this version of ggml. The environment variable
    /// `GGML_BACKEND_PATH`, if set, names another one that is loaded.
    #[doc(alias = "ggml_backend_load_all_from_path")]
    pub unsafe fn load_all_from(folder: impl AsRef<Path>) -> Result<()> {
        let path = c_path("Registry::load_all_from", folder.as_ref())?;
        registry::locked(|| {
            guard::call("ggml_backend_load_all_from_path", || {
                // SAFETY: the path lives during the call; we hold the lock over ggml's lists. What is loaded is by contract
                // this ggml's.
                unsafe { sys::ggml_backend_load_all_from_path(path.as_ptr()) }
            })
        })
    }

    /// Loads one backend from its file (`ggml_backend_load`).
    ///
    /// # Errors
    ///
    /// [`Error::Null`] with what ggml logged where it can't be loaded; [`Error::Param`] for a path that C can't take.
    ///
    /// # Safety
    ///
    /// Loading a library runs it: it must be a backend of this version of ggml.
    #[doc(alias = "ggml_backend_load")]
    pub unsafe fn load(file: impl AsRef<Path>) -> Result<Self> {
        const CALL: &str = "ggml_backend_load";
        let path = c_path("Registry::load", file.as_ref())?;
        registry::locked(|| {
            let mark = log::mark();
            let raw = guard::call(CALL, || {
                // SAFETY: as in `load_all_from`.
                unsafe { sys::ggml_backend_load(path.as_ptr()) }
            })?;
            // SAFETY: a registry that stays until somebody vouches for its end (`unload`).
            unsafe { Self::from_raw(raw) }.ok_or_else(|| Error::Null { call: CALL, log: log::since(mark) })
        })
    }

    /// Removes a backend that was loaded, and its devices, from ggml's lists, and unloads its library
    /// (`ggml_backend_unload`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] where ggml fails.
    ///
    /// # Safety
    ///
    /// Nothing of this backend may be used any more, in any thread: neither this handle and its copies nor its devices,
    /// their buffer types, backends, buffers, what lies in them, and [`Pinned`](crate::Pinned) memory.
    #[doc(alias = "ggml_backend_unload")]
    pub unsafe fn unload(self) -> Result<()> {
        registry::locked(|| {
            guard::call("ggml_backend_unload", || {
                // SAFETY: the registry is on ggml's list, over which we hold the lock; nothing of it is in use by contract.
                unsafe { sys::ggml_backend_unload(self.as_ptr()) }
            })
        })
    }
}

fn c_path(op: &'static str, path: &Path) -> Result<CString> {
    path.to_str().and_then(|text| CString::new(text).ok()).ok_or_else(|| Error::Param {
        op,
        name: "path",
        value: path.display().to_string().into(),
        expected: "it must be UTF-8 without a NUL".into(),
    })
}
