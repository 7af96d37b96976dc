//! What a process uses.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Counts of what a process holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    threads: usize,
    handles: usize,
    /// Bytes that are allocated, by Rust or by C.
    allocated: usize,
    /// Memory that is there, in KiB.
    rss: usize,
}

/// How long threads may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that may be allocated for once, such as a table that grows late.
const ONCE: usize = 2 << 10;

/// How much the memory that is there may grow: what is freed is not given back at once, nor in one piece.
const LOOSE: usize = 2 << 10;

impl Use {
    pub(crate) fn now() -> Self {
        // SAFETY: it gives back what is free, and touches nothing else.
        let _less = unsafe { libc::malloc_trim(0) };
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        // SAFETY: it reads counts of the allocator's.
        let info = unsafe { libc::mallinfo2() };
        Self {
            threads: fs::read_dir("/proc/self/task").unwrap().count(),
            handles: fs::read_dir("/proc/self/fd").unwrap().count(),
            allocated: info.uordblks + info.hblkhd,
            rss: 4 * statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap(),
        }
    }

    /// [`Use::now`], when threads and handles have come down to what they were, or after a while.
    pub(crate) fn now_as(before: &Self) -> Self {
        let started = Instant::now();
        loop {
            let now = Self::now();
            if now.threads <= before.threads && now.handles <= before.handles || started.elapsed() > PATIENCE {
                return now;
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// The difference, in words.
    pub(crate) fn to(&self, after: &Self) -> String {
        let part = |name, from: usize, to: usize| format!("{name}={from}->{to}");
        [
            part("threads", self.threads, after.threads),
            part("handles", self.handles, after.handles),
            part("rss_kib", self.rss, after.rss),
            part("allocated", self.allocated, after.allocated),
        ]
        .join(" ")
    }

    /// Fails unless it is what it was before.
    pub(crate) fn check(&self, before: &Self, rounds: u64) {
        assert!(self.threads <= before.threads, "threads after {rounds} rounds: {}", before.to(self));
        assert!(self.handles <= before.handles, "handles after {rounds} rounds: {}", before.to(self));
        assert!(self.allocated <= before.allocated + ONCE, "memory after {rounds} rounds: {}", before.to(self));
        assert!(self.rss <= before.rss + LOOSE, "memory after {rounds} rounds: {}", before.to(self));
    }
}
