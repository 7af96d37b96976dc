//! Where an allocation puts tensors. Headers say so only while C uses them.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use ggml_sys as sys;

use super::{Owner, TensorPtr};

/// The memory that an allocation gave a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Home {
    pub(crate) tensor: TensorPtr,
    data: *mut c_void,
    buffer: *mut sys::ggml_backend_buffer,
    extra: *mut c_void,
}

impl Home {
    /// Whether the device keeps something of its own with the tensor.
    pub(crate) fn has_extra(&self) -> bool {
        !self.extra.is_null()
    }

    /// Writes it into the header. A view of placed memory has its address already, perhaps in another buffer than when this
    /// was noted: weights may have been replaced by others whose tensors got the same place.
    #[inline]
    pub(crate) fn put_in(mut self, views_placed: bool) {
        let placed = if views_placed { self.tensor.view_src() } else { None };
        let buffer = placed.map_or(self.buffer, TensorPtr::buffer);
        let t = self.tensor.get_mut();
        t.buffer = buffer;
        t.extra = self.extra;
        if !views_placed {
            t.data = self.data;
        }
    }

    /// Takes it out again.
    #[inline]
    pub(crate) fn take_out(mut self, views_placed: bool) {
        let t = self.tensor.get_mut();
        t.buffer = ptr::null_mut();
        t.extra = ptr::null_mut();
        if !views_placed {
            t.data = ptr::null_mut();
        }
    }
}

thread_local! {
    /// How many computations of this thread are under way while user code runs.
    static SHARED: Cell<u32> = const { Cell::new(0) };
}

/// For as long as it lives, tensors may be [in use](TensorPtr::is_in_use).
pub(crate) struct Sharing(());

impl Sharing {
    pub(crate) fn begin() -> Self {
        SHARED.set(SHARED.get() + 1);
        Self(())
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        SHARED.set(SHARED.get() - 1);
    }
}

/// Whether there is a computation whose tensors are [in use](TensorPtr::is_in_use).
#[inline]
pub(crate) fn any_in_use() -> bool {
    SHARED.get() > 0
}

impl TensorPtr {
    /// Whether a computation is under way that has put its memory into the header: nothing else may look at or change what
    /// is in there.
    #[inline]
    pub(crate) fn is_in_use(self) -> bool {
        any_in_use() && self.get().padding[1] != 0
    }

    pub(crate) fn set_in_use(mut self, yes: bool) {
        self.get_mut().padding[1] = yes.into();
    }

    /// Puts the tensor's memory back to what its builder leaves, so that an allocation sees it as new: none, or for a
    /// view of placed memory its address there.
    pub(crate) fn release(self) {
        self.release_from(self.view_src().is_some_and(|root| root.owner() != Owner::Graph));
    }

    /// [`TensorPtr::release`] of a tensor of which the caller knows whether it is a view of placed memory.
    #[inline]
    pub(crate) fn release_from(mut self, placed: bool) {
        let data = self.built_data(placed);
        let t = self.get_mut();
        t.data = data;
        t.buffer = ptr::null_mut();
        t.extra = ptr::null_mut();
    }

    /// The address that a builder gives: that of a view of placed memory, else none.
    fn built_data(self, placed: bool) -> *mut c_void {
        match self.view_src() {
            Some(root) if placed => root.get().data.cast::<u8>().wrapping_add(self.view_offs()).cast(),
            _ => ptr::null_mut(),
        }
    }

    /// Whether the header says of the tensor's memory what its builder left there.
    pub(crate) fn is_as_built(self, placed: bool) -> bool {
        let t = self.get();
        t.buffer.is_null() && t.extra.is_null() && t.data == self.built_data(placed)
    }

    /// Where an allocator put the tensor.
    pub(crate) fn home(self) -> Home {
        let t = self.get();
        Home { tensor: self, data: t.data, buffer: t.buffer, extra: t.extra }
    }
}
