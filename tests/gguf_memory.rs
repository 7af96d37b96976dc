//! What reading a file takes of memory is bounded by the file's length, whatever the file says.
//!
//! A test of its own: it counts what the whole process allocates.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ggml::gguf::{Reader, Writer};

/// The system's allocator, which also counts.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise; it is from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that were allocated at a time while `bytes` were read, themselves not counted.
fn peak(bytes: Vec<u8>) -> (usize, bool) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = Reader::from_bytes(bytes);
    (PEAK.load(Ordering::Relaxed) - before, result.is_ok())
}

fn header(n_tensors: u64, n_metadata: u64) -> Vec<u8> {
    [&b"GGUF"[..], &3_u32.to_ne_bytes(), &n_tensors.to_ne_bytes(), &n_metadata.to_ne_bytes()].concat()
}

#[test]
fn reading_takes_a_small_multiple_of_the_file() {
    const LEN: usize = 1 << 20;
    const MOST: usize = 8 * LEN;
    // What the first error or log line sets up is not at issue.
    assert!(Reader::from_bytes(header(1, 1)).is_err());

    // As many entries as there can be: keys of three bytes with a boolean each.
    let mut dense = Writer::new();
    for i in 0..60_000 {
        dense.set(&format!("{i:x}"), true).unwrap();
    }
    let dense = dense.to_bytes().unwrap();
    let (taken, read) = peak(dense.clone());
    assert!(read && taken <= 8 * dense.len(), "{taken} bytes for a file of {}", dense.len());

    // Empty texts, the smallest thing that takes memory of its own.
    let mut texts = Writer::new();
    texts.set("texts", vec![String::new(); LEN / 8]).unwrap();
    let (taken, read) = peak(texts.to_bytes().unwrap());
    assert!(read && taken <= MOST, "{taken}");

    // Counts that just fit, and counts that don't, with nothing behind them that is meant.
    for n in [LEN as u64 / 32, LEN as u64 / 24, 1 << 40, u64::MAX] {
        for (n_tensors, n_metadata) in [(n, 0), (0, n), (n, n)] {
            let mut file = header(n_tensors, n_metadata);
            file.resize(LEN, 0);
            let (taken, read) = peak(file);
            assert!(!read && taken <= MOST, "{taken} for {n_tensors} tensors, {n_metadata} entries");
        }
        let array =
            [&header(0, 1)[..], &1_u64.to_ne_bytes(), b"k", &9_u32.to_ne_bytes(), &8_u32.to_ne_bytes()].concat();
        let mut file = [&array[..], &n.to_ne_bytes()].concat();
        file.resize(LEN, 0xff);
        let (taken, read) = peak(file);
        assert!(!read && taken <= MOST, "{taken} for {n} texts");
    }
}
