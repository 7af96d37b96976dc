//! Where tensors lie, and how they lose their memory again.

use std::ffi::c_void;
use std::ptr;

use ggml_sys as sys;

use super::{Owner, TensorPtr};

/// The memory of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Home {
    pub(crate) tensor: TensorPtr,
    data: *mut c_void,
    buffer: *mut sys::ggml_backend_buffer,
}

impl Home {
    /// Puts the tensor there again. One that views placed memory has its address already, perhaps in another buffer than
    /// last time: weights may have been replaced by others whose tensors got the same place.
    #[inline]
    pub(crate) fn put_back(mut self, views_placed: bool) {
        let placed = if views_placed { self.tensor.view_src() } else { None };
        let buffer = placed.map_or(self.buffer, TensorPtr::buffer);
        let t = self.tensor.get_mut();
        t.buffer = buffer;
        if !views_placed {
            t.data = self.data;
        }
    }
}

impl TensorPtr {
    /// Puts the tensor's memory back to what its builder leaves, so that an allocation sees it as new: none, or for a
    /// view of placed memory its address there.
    pub(crate) fn release(self) {
        self.release_from(self.view_src().is_some_and(|root| root.owner() != Owner::Graph));
    }

    /// [`TensorPtr::release`] of a tensor of which the caller knows whether it is a view of placed memory.
    #[inline]
    pub(crate) fn release_from(mut self, placed: bool) {
        let data = match self.view_src() {
            Some(root) if placed => root.get().data.cast::<u8>().wrapping_add(self.view_offs()).cast(),
            _ => ptr::null_mut(),
        };
        let t = self.get_mut();
        t.data = data;
        t.buffer = ptr::null_mut();
        t.extra = ptr::null_mut();
    }

    /// [`TensorPtr::release`] of a tensor that was put into its [`Home`].
    #[inline]
    pub(crate) fn leave_home(mut self, views_placed: bool) {
        let t = self.get_mut();
        t.buffer = ptr::null_mut();
        if !views_placed {
            t.data = ptr::null_mut();
        }
    }

    /// Where an allocator put the tensor; `None` if it did more than that. What is `placed` was there before.
    pub(crate) fn home(self, placed: bool) -> Option<Home> {
        let t = self.get();
        (placed || t.extra.is_null()).then_some(Home { tensor: self, data: t.data, buffer: t.buffer })
    }
}
