//! The memory of meta devices. C asserts, in the middle of an allocation, that each member has memory, and would lose
//! the memory of the members before. So this crate asks each member first, and C allocates only what all of them have.

use std::ptr;

use ggml_sys as sys;

use crate::device::{BufferType, Device, driven};
use crate::ffi::CBufferType;
use crate::guard::guarded;
use crate::{guard, list, log};

type RawBuffer = *mut sys::ggml_backend_buffer;

/// A copy of C's buffer type for a meta device. Unlike C's own, it asks the members for memory before C allocates. C
/// recognises the copy as a meta device's by one of its functions, and finds the device and the members in the same
/// places.
#[repr(C)]
struct Asking {
    /// The first field, so that C's pointer to it also points to the whole struct.
    buft: sys::ggml_backend_buffer_type,
    allocate: unsafe extern "C-unwind" fn(CBufferType, usize) -> RawBuffer,
    members: Box<[BufferType]>,
}

/// The buffer type that asks members first, to use in place of `own`, C's buffer type for a meta device. Never freed.
/// `None` if `own` can't allocate.
pub(super) fn asking(own: BufferType, members: &[Device]) -> Option<BufferType> {
    // SAFETY: buffer types are never freed, and nothing writes to them; this copies the struct.
    let mut buft = unsafe { own.as_ptr().read() };
    let allocate = buft.iface.alloc_buffer.replace(allocate)?;
    let members = members.iter().map(|d| d.buffer_type()).collect();
    let asking: *mut Asking = Box::leak(Box::new(Asking { buft, allocate, members }));
    // SAFETY: `asking` is leaked; its first field is a buffer type.
    Some(unsafe { BufferType::from_raw(asking.cast()) })
}

/// Allocates `size` bytes on each member, or returns NULL, which a graph's allocator takes for a lack of memory.
unsafe extern "C-unwind" fn allocate(buft: CBufferType, size: usize) -> RawBuffer {
    // SAFETY: C passes the buffer type that has this function: one that `asking` made and leaked.
    let asking = unsafe { &*buft.cast_const().cast::<Asking>() };
    let Some(had) = Had::of(&asking.members, size) else { return ptr::null_mut() };
    let _stock = had.offer();
    let made = guard::call("ggml_backend_buft_alloc_buffer", || {
        // SAFETY: this is C's own function for buffer types of meta devices. It gets one whose device, context and
        // other functions are those of C's own. C keeps its address, which stays valid, because it is never freed.
        unsafe { (asking.allocate)(buft, size) }
    });
    made.unwrap_or_else(|error| {
        log::inside(&format!("failed to allocate {size} bytes of each device after all had them: {error}"));
        ptr::null_mut()
    })
}

/// The buffers that all members have allocated. The drop frees them.
struct Had<'a> {
    size: usize,
    buffers: Vec<(&'a BufferType, Owned)>,
}

impl<'a> Had<'a> {
    /// Asks each member for `size` bytes. The results exist at the same time, so C can have as much.
    fn of(members: &'a [BufferType], size: usize) -> Option<Self> {
        let mut buffers = list::reserved(members.len(), "a buffer of each device").ok()?;
        for buft in members {
            // SAFETY: buffer types are never freed. C keeps nothing of ours, and the result is ours.
            let raw = unsafe { guarded!(call, sys::ggml_backend_buft_alloc_buffer(buft.as_ptr(), size)) };
            match raw {
                Ok(raw) if !raw.is_null() => buffers.push((buft, Owned(raw))),
                Ok(_) => return None,
                Err(error) => {
                    log::inside(&format!("failed to allocate {size} bytes: {error}"));
                    return None;
                }
            }
        }
        Some(Self { size, buffers })
    }

    /// Frees the buffers, so that C can have their memory. Buffers of devices in Rust are kept for C, because such a
    /// device may refuse the second time what it gave the first time.
    fn offer(self) -> driven::Stock {
        let size = self.size;
        let kept = self.buffers.into_iter().filter(|(buft, _)| buft.device().is_some_and(Device::is_driven));
        driven::Stock::of(kept.map(|(buft, buffer)| (buft.as_ptr(), size, buffer)))
    }
}

/// A C buffer that this value alone frees.
pub(in crate::device) struct Owned(RawBuffer);

impl Owned {
    /// Gives the buffer to C.
    pub(in crate::device) fn into_raw(self) -> RawBuffer {
        let raw = self.0;
        #[expect(clippy::mem_forget, reason = "C owns it now")]
        std::mem::forget(self);
        raw
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: C made the buffer; it is not NULL, and ours by the type's invariant.
        unsafe { guarded!(free, sys::ggml_backend_buffer_free(self.0)) };
    }
}
