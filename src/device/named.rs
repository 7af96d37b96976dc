//! Functions that backends offer by name, with their types from ggml's headers.
//!
//! Three functions are not declared for all builds, so their types are written by hand:
//! `ggml_backend_register_host_buffer` and its counterpart (`buffer/pinned.rs`), which CUDA's header declares by other
//! names, checked in builds with CUDA; and `ggml_backend_meta_simple_backend` (`backend/raw.rs`), which is linked.

use std::ffi::CStr;
use std::marker::PhantomData;

use super::Registry;
use crate::error::{Error, Result};
use crate::guard;

/// The name of a function and, as `F`, the type of a pointer to it; made by `named!`.
#[derive(Clone, Copy)]
pub(crate) struct Named<F> {
    name: &'static CStr,
    function: PhantomData<F>,
}

impl<F: Copy> Named<F> {
    /// # Safety
    ///
    /// `F` must be the type of a pointer to the function that backends offer by this name. `_declared` is there for its
    /// type only.
    pub(crate) const unsafe fn new(name: &'static CStr, _declared: Option<F>) -> Self {
        Self { name, function: PhantomData }
    }
}

/// Makes a [`Named`]: `named!(c"name" as function(_, _))` for a function that a header declares, with a `_` for each
/// parameter, or `named!(c"name" as typedef)` for a named function type. The declaration is never linked to, because a
/// backend that is loaded at run time can't be.
macro_rules! named {
    ($name:literal as $function:ident($($parameter:tt),*)) => {
        const {
            let declared: unsafe extern "C-unwind" fn($($parameter),*) -> _ = ggml_sys::$function;
            let name: &'static std::ffi::CStr = $name;
            // SAFETY: the type is from the header, and backends are of the same ggml as the headers (`version::check`).
            unsafe { crate::device::named::Named::new(name, Some(declared)) }
        }
    };
    ($name:literal as $typedef:ident) => {
        const {
            let declared: ggml_sys::$typedef = None;
            let name: &'static std::ffi::CStr = $name;
            // SAFETY: the type is from the header, and backends are of the same ggml as the headers (`version::check`).
            unsafe { crate::device::named::Named::new(name, declared) }
        }
    };
}
pub(crate) use named;

impl Registry {
    /// The backend's function with the name in `named`, if it has one.
    pub(crate) fn find<F: Copy>(self, named: Named<F>) -> Option<F> {
        // SAFETY: `F` is the function's type, by the `# Safety` of `Named::new`.
        unsafe { self.find_function(named.name) }
    }

    /// Calls the backend's function with the name in `named`. It is an error if there is none.
    pub(crate) fn call<F: Copy, R>(self, named: Named<F>, call: impl FnOnce(F) -> R) -> Result<R> {
        let function = self.function(named)?;
        guard::call(named.name.to_str().unwrap_or_default(), || call(function))
    }

    /// The backend's function with the name in `named`. It is an error if there is none.
    pub(crate) fn function<F: Copy>(self, named: Named<F>) -> Result<F> {
        self.find(named).ok_or(Error::Null { call: "ggml_backend_reg_get_proc_address", log: Box::default() })
    }
}
