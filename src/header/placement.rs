//! The memory that an allocation gives to tensors. Headers hold it only while C uses them.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use ggml_sys as sys;

use super::{Owner, TensorPtr};

/// The memory that an allocation gave to a tensor, saved outside of its header.
#[derive(Clone, Copy)]
pub(crate) struct SavedPlacement {
    pub(crate) tensor: TensorPtr,
    data: *mut c_void,
    buffer: *mut sys::ggml_backend_buffer,
    extra: *mut c_void,
}

impl SavedPlacement {
    /// Whether the backend attached data of its own (`extra`) to the tensor.
    pub(crate) fn has_extra(&self) -> bool {
        !self.extra.is_null()
    }

    /// Writes the placement into the header. A view of weights or a state keeps the address that its builder set, and
    /// takes the current buffer of its root: the saved buffer may be gone, if new weights got the same addresses (H90).
    #[inline]
    pub(crate) fn write(mut self, views_placed: bool) {
        let placed = if views_placed { self.tensor.view_src() } else { None };
        let buffer = placed.map_or(self.buffer, TensorPtr::buffer);
        let t = self.tensor.get_mut();
        t.buffer = buffer;
        t.extra = self.extra;
        if !views_placed {
            t.data = self.data;
        }
    }

    /// Removes the placement from the header.
    #[inline]
    pub(crate) fn clear(mut self, views_placed: bool) {
        let t = self.tensor.get_mut();
        t.buffer = ptr::null_mut();
        t.extra = ptr::null_mut();
        if !views_placed {
            t.data = ptr::null_mut();
        }
    }
}

thread_local! {
    /// How many computations on this thread are running user code.
    static SHARED: Cell<u32> = const { Cell::new(0) };
}

/// A scope in which tensors may be [in use](TensorPtr::is_in_use) by a computation on this thread.
pub(crate) struct InUseScope(());

impl InUseScope {
    pub(crate) fn begin() -> Self {
        SHARED.set(SHARED.get() + 1);
        Self(())
    }
}

impl Drop for InUseScope {
    fn drop(&mut self) {
        SHARED.set(SHARED.get() - 1);
    }
}

/// Whether a computation on this thread has tensors [in use](TensorPtr::is_in_use).
#[inline]
pub(crate) fn any_in_use() -> bool {
    SHARED.get() > 0
}

impl TensorPtr {
    /// Whether a running computation has written its placement into the header. Nothing else may read or change it
    /// then.
    #[inline]
    pub(crate) fn is_in_use(self) -> bool {
        any_in_use() && self.get().padding[1] != 0
    }

    pub(crate) fn set_in_use(mut self, yes: bool) {
        self.get_mut().padding[1] = yes.into();
    }

    /// Resets the tensor's memory to what its builder leaves, so that an allocation sees the tensor as new. A builder
    /// leaves an address in a view of weights or a state, else NULL.
    pub(crate) fn release(self) {
        self.release_from(self.view_src().is_some_and(|root| root.owner() != Owner::Graph));
    }

    /// Does what [`TensorPtr::release`] does. The caller says whether the tensor is a view of weights or a state.
    #[inline]
    pub(crate) fn release_from(mut self, placed: bool) {
        let data = self.built_data(placed);
        let t = self.get_mut();
        t.data = data;
        t.buffer = ptr::null_mut();
        t.extra = ptr::null_mut();
    }

    /// The address that a builder sets in the header: one inside `root` for a view of weights or a state, else NULL.
    fn built_data(self, placed: bool) -> *mut c_void {
        match self.view_src() {
            Some(root) if placed => root.get().data.cast::<u8>().wrapping_add(self.view_offs()).cast(),
            _ => ptr::null_mut(),
        }
    }

    /// Whether the header's `data`, `buffer` and `extra` are those that its builder left.
    pub(crate) fn is_as_built(self, placed: bool) -> bool {
        let t = self.get();
        t.buffer.is_null() && t.extra.is_null() && t.data == self.built_data(placed)
    }

    /// The placement that the header holds now.
    pub(crate) fn placement(self) -> SavedPlacement {
        let t = self.get();
        SavedPlacement { tensor: self, data: t.data, buffer: t.buffer, extra: t.extra }
    }
}
