//! What goes over the wire.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was exchanged with a server since it was connected to, the protocol's own bytes included, those of TCP not.
///
/// Of a request that was sent the whole answer counts, whether it came or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that came back.
    pub received: u64,
}

/// Counts for everyone who holds a server.
#[derive(Debug, Default)]
pub(super) struct Counter {
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counter {
    /// Counts one request of so many bytes, and its answer.
    pub(super) fn add(&self, sent: u64, received: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }
}
