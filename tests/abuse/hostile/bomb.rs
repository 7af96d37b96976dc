//! Values whose destructors are code of the program's too.

use std::any::Any;
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

/// What the program panics with. It takes no memory, since the library may have to leak it; `LIVE`: its drop does something,
/// which may be a panic.
#[derive(Debug)]
pub(super) struct Payload<const LIVE: bool>;

/// A new payload of either kind.
pub(super) fn payload(live: bool) -> Box<dyn Any + Send> {
    if live { Box::new(Payload::<true>) } else { Box::new(Payload::<false>) }
}

/// Drops a panic's payload in peace, if it is of the program's.
pub(super) fn defuse(panic: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>> {
    let panic = match panic.downcast::<Payload<true>>() {
        Ok(live) => {
            let _not_dropped = ManuallyDrop::new(*live);
            return Ok(());
        }
        Err(other) => other,
    };
    panic.downcast::<Payload<false>>().map(drop)
}

impl<const LIVE: bool> Drop for Payload<LIVE> {
    fn drop(&mut self) {
        if LIVE {
            inside(Place::Drop);
        }
    }
}
