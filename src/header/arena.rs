//! Memory for tensor headers that Rust makes. Headers that C makes lie in C's pools.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::error::Result;
use crate::{list, version};

/// How many tensors a chunk of the arena holds: the first one, and the largest.
const FIRST: usize = 64;
const LARGEST: usize = 4096;

/// An arena of tensor headers, which keep their addresses until a reset.
///
/// # Invariants
///
/// `next` points to the unused end of the current chunk, which has room for `left` tensors. Chunks are vectors of
/// length 0 that never grow, so only the pointers that [`Arena::push`] returned refer to their memory.
pub(crate) struct Arena {
    chunks: RefCell<Vec<Vec<sys::ggml_tensor>>>,
    /// The number of chunks in use; the last of them is the current one.
    used: Cell<usize>,
    next: Cell<*mut sys::ggml_tensor>,
    left: Cell<usize>,
}

impl Default for Arena {
    fn default() -> Self {
        Self { chunks: RefCell::default(), used: Cell::new(0), next: Cell::new(ptr::null_mut()), left: Cell::new(0) }
    }
}

impl Arena {
    /// Adds a zeroed tensor, which `fill` then fills in. It lives until the next reset.
    #[inline]
    pub(crate) fn push(&self, fill: impl FnOnce(&mut sys::ggml_tensor)) -> Result<NonNull<sys::ggml_tensor>> {
        if self.left.get() == 0 {
            self.open()?;
        }
        let to = self.next.get();
        self.left.set(self.left.get() - 1);
        self.next.set(to.wrapping_add(1));
        // SAFETY: `left` was not 0, so `next` lies in the current chunk, with room for a tensor (the type's invariant).
        unsafe { to.write_bytes(0, 1) };
        // SAFETY: zeroes, written just now, are valid for all fields; nothing else refers to this memory yet.
        let t = unsafe { &mut *to };
        fill(t);
        Ok(NonNull::from(t))
    }

    /// Makes the next chunk the current one.
    #[cold]
    fn open(&self) -> Result<()> {
        // C functions that read tensors are called without `guard`, so ggml's version is checked here, before a tensor
        // exists.
        version::check()?;
        let mut chunks = self.chunks.borrow_mut();
        let used = self.used.get();
        if used == chunks.len() {
            let n = chunks.last().map_or(FIRST, |c| (2 * c.capacity()).min(LARGEST));
            chunks.push(list::reserved(n, "a pool of tensor headers")?);
        }
        if let Some(chunk) = chunks.get_mut(used) {
            self.next.set(chunk.as_mut_ptr());
            self.left.set(chunk.capacity());
        }
        self.used.set(used + 1);
        Ok(())
    }

    /// Bytes of the arena in use.
    pub(crate) fn used(&self) -> usize {
        let tensors: usize = self.chunks.borrow().iter().take(self.used.get()).map(Vec::capacity).sum();
        (tensors - self.left.get()) * size_of::<sys::ggml_tensor>()
    }

    /// Bytes that the arena has allocated, in use or not.
    pub(crate) fn len(&self) -> usize {
        self.chunks.borrow().iter().map(Vec::capacity).sum::<usize>() * size_of::<sys::ggml_tensor>()
    }

    /// Forgets all tensors and keeps their memory for new ones.
    ///
    /// # Safety
    ///
    /// Nothing may use a tensor of the arena afterwards.
    pub(crate) unsafe fn reset(&mut self) {
        self.used.set(0);
        self.left.set(0);
    }
}
