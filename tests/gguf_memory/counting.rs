//! An allocator that counts, for each thread by itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which also counts.
struct Counting;

// SAFETY: all is passed on to the system's allocator; the counters take no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.get().wrapping_add(layout.size());
        NOW.set(now);
        PEAK.set(PEAK.get().max(now));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.set(NOW.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promise; it is from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `f` returns, and the most bytes that it had allocated at a time on this thread.
pub(crate) fn peak<T>(f: impl FnOnce() -> T) -> (usize, T) {
    // What is freed but was allocated before does not make room.
    NOW.set(1 << 60);
    PEAK.set(1 << 60);
    let result = f();
    (PEAK.get() - (1 << 60), result)
}
