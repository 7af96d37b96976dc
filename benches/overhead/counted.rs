//! A global allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Of this thread: what others do beside does not count.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counted;

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// How often this thread has asked Rust for memory. A reallocation counts as well: it goes through `alloc`.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}
