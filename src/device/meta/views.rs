//! The headers that C has for views of states on a meta device.
//!
//! Each member has a header of its own for each view. C makes these headers in the state's buffer when it allocates a
//! graph, keeps only those of the last allocated graph, and frees them when it computes another graph. So a buffer's
//! views belong to one allocation at a time ([`Views::hand_to`]), and earlier ones can't be computed or read any more.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of views of each tensor in a buffer for which C makes room (`compute_headroom`).
const ROOM: usize = 16;

/// The views of the tensors in one buffer of states.
#[derive(Debug)]
pub(crate) struct Views {
    room: usize,
    /// The id of the allocation that has the views.
    holder: AtomicU64,
}

impl Views {
    /// The views of a buffer with this many tensors.
    pub(super) fn of(tensors: usize) -> Self {
        Self { room: tensors.saturating_mul(ROOM), holder: AtomicU64::new(0) }
    }

    /// How many views a graph may have.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Takes the views away from earlier allocations.
    pub(crate) fn hand_to(&self, allocation: u64) {
        self.holder.store(allocation, Ordering::Relaxed);
    }

    /// Whether this allocation still has the views. One thread at a time uses a state, so a relaxed load suffices.
    pub(crate) fn are_of(&self, allocation: u64) -> bool {
        self.holder.load(Ordering::Relaxed) == allocation
    }
}
