//! Values whose destructors are code of the program's too.

use std::mem::ManuallyDrop;

use super::stage::{Place, inside};

/// What a closure has captured.
#[derive(Debug)]
pub(crate) struct Bomb;

impl Bomb {
    /// To be called in the closure, so that it captures this.
    #[expect(clippy::unused_self, reason = "captured by that")]
    pub(crate) fn act(&self, place: Place) {
        inside(place);
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        inside(Place::Drop);
    }
}

/// What the program panics with.
#[derive(Debug)]
pub(super) struct Payload {
    /// Whether its drop does something, which may be a panic.
    live: bool,
}

impl Payload {
    pub(super) fn new(live: bool) -> Self {
        Self { live }
    }

    /// Drops it in peace.
    #[expect(clippy::boxed_local, reason = "as panics come")]
    pub(super) fn defuse(self: Box<Self>) {
        let _not_dropped = ManuallyDrop::new(*self);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if self.live {
            inside(Place::Drop);
        }
    }
}
