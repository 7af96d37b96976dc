//! Functions that backends offer by name, with the types that ggml's headers give them.
//!
//! No type is written down by hand, except those of three functions that no header declares to all builds:
//! `ggml_backend_register_host_buffer` and its opposite (`buffer/pinned.rs`), which CUDA's header declares by other names and
//! which are checked in builds with CUDA, and `ggml_backend_meta_simple_backend` (`backend/raw.rs`), which is linked.

use std::ffi::CStr;
use std::marker::PhantomData;

use super::Registry;
use crate::error::{Error, Result};

/// The name of a function and, as `F`, the type of a pointer to it; made by `named!`.
#[derive(Clone, Copy)]
pub(crate) struct Named<F> {
    name: &'static CStr,
    function: PhantomData<F>,
}

impl<F: Copy> Named<F> {
    /// # Safety
    ///
    /// `F` must be the type of a pointer to the function that backends offer by this name. The value is not used.
    pub(crate) const unsafe fn new(name: &'static CStr, _declared: Option<F>) -> Self {
        Self { name, function: PhantomData }
    }
}

/// A function's [`Named`]: `named!(c"name" as function(_, _))` for one that a header declares, with a `_` for each parameter,
/// or `named!(c"name" as typedef)` for one whose type has a name. What is declared is looked at and never linked to: with
/// backends that are loaded while the program runs it can't be.
macro_rules! named {
    ($name:literal as $function:ident($($parameter:tt),*)) => {
        const {
            let declared: unsafe extern "C-unwind" fn($($parameter),*) -> _ = ggml_sys::$function;
            let name: &'static std::ffi::CStr = $name;
            // SAFETY: the type is the header's, and backends are of the ggml that the headers are of (`version::check`).
            unsafe { crate::device::named::Named::new(name, Some(declared)) }
        }
    };
    ($name:literal as $typedef:ident) => {
        const {
            let declared: ggml_sys::$typedef = None;
            let name: &'static std::ffi::CStr = $name;
            // SAFETY: as above.
            unsafe { crate::device::named::Named::new(name, declared) }
        }
    };
}
pub(crate) use named;

impl Registry {
    /// A function that the backend may offer.
    pub(crate) fn find<F: Copy>(self, named: Named<F>) -> Option<F> {
        // SAFETY: that is the function's type, as whoever made `named` has said.
        unsafe { self.find_function(named.name) }
    }

    /// A function that the backend must offer.
    pub(crate) fn function<F: Copy>(self, named: Named<F>) -> Result<F> {
        self.find(named).ok_or(Error::Null { call: "ggml_backend_reg_get_proc_address", log: Box::default() })
    }
}
