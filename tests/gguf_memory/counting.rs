//! An allocator that counts per thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system allocator, with counters.
struct Counting;

// SAFETY: passes every call on to the system allocator; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.get().wrapping_add(layout.size());
        NOW.set(now);
        PEAK.set(PEAK.get().max(now));
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.set(NOW.get().wrapping_sub(layout.size()));
        // SAFETY: the caller keeps `GlobalAlloc`'s contract; `ptr` came from the system allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns `f`'s result and the peak of bytes that it allocated on this thread.
pub(crate) fn peak<T>(f: impl FnOnce() -> T) -> (usize, T) {
    // Starts high, so that freeing older memory can't underflow the counter.
    NOW.set(1 << 60);
    PEAK.set(1 << 60);
    let result = f();
    (PEAK.get() - (1 << 60), result)
}
