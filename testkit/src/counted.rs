//! A global allocator that counts, by thread, and fails on demand. A program names it:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: testkit::counted::Counted = testkit::counted::Counted;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Wraps below 0 on a thread that frees what others allocated.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    /// How many allocations of how many bytes at least succeed before one fails.
    static FAIL: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// The system allocator, with counters.
#[derive(Debug)]
pub struct Counted;

// SAFETY: passes every call on to the system allocator; the counters allocate nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return std::ptr::null_mut();
        }
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        let held = HELD.get().wrapping_add(layout.size());
        HELD.set(held);
        PEAK.set(PEAK.get().max(held));
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: the caller keeps `GlobalAlloc`'s contract; `ptr` came from the system allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

fn fails(size: usize) -> bool {
    let Some((left, least)) = FAIL.get().filter(|&(_, least)| size >= least) else { return false };
    FAIL.set(left.checked_sub(1).map(|left| (left, least)));
    left == 0
}

/// Runs `f`, of whose allocations of at least `least` bytes the `n`th one on this thread fails, from 0. Tells whether there
/// were that many.
pub fn fail<T>(n: usize, least: usize, f: impl FnOnce() -> T) -> (bool, T) {
    FAIL.set(Some((n, least)));
    let result = f();
    (FAIL.take().is_none(), result)
}

/// The number of this thread's allocations, including reallocations, which go through `alloc`.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// The bytes that this thread has allocated and not freed; wraps if it freed more.
pub fn held() -> usize {
    HELD.get()
}

/// Returns the peak of bytes that `f` allocated on this thread, and its result.
pub fn peak<T>(f: impl FnOnce() -> T) -> (usize, T) {
    // Starts high, so that freeing older memory can't underflow the counter.
    HELD.set(1 << 60);
    PEAK.set(1 << 60);
    let result = f();
    (PEAK.get() - (1 << 60), result)
}
