//! Devices that are implemented in Rust (`driver/`): what lower layers must know of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Device, meta};
use crate::error::{Error, Result};
use crate::lock::Lock;

/// The state of such a device, shared by all that use it. Never freed, as the device is not.
#[derive(Debug)]
pub(crate) struct Driven {
    name: Box<str>,
    /// Why it was lost; set once.
    lost: OnceLock<Box<str>>,
}

/// All of them; there are few.
static ALL: Lock<Vec<(Device, &'static Driven)>> = Lock::new(Vec::new());

/// Whether there are any, and whether one was lost. Both avoid the lock until then.
static ANY: AtomicBool = AtomicBool::new(false);
static ANY_LOST: AtomicBool = AtomicBool::new(false);

impl Driven {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), lost: OnceLock::new() }
    }

    /// Fails if the device was lost.
    pub(crate) fn check(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(Error::DeviceLost { device: self.name.clone(), reason: reason.clone() }),
        }
    }

    /// Marks the device as lost. The first reason is kept.
    pub(crate) fn mark_lost(&self, reason: Box<str>) {
        self.lost.get_or_init(|| reason);
        ANY_LOST.store(true, Ordering::Release);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Records a device that was just made.
pub(crate) fn attach(device: Device, driven: &'static Driven) {
    ALL.lock().push((device, driven));
    ANY.store(true, Ordering::Release);
}

fn find(device: Device) -> Option<&'static Driven> {
    ALL.lock().iter().find(|(d, _)| *d == device).map(|(_, driven)| *driven)
}

/// Fails if the device was lost.
pub(super) fn check(device: Device) -> Result<()> {
    if ANY_LOST.load(Ordering::Acquire) { find(device).map_or(Ok(()), Driven::check) } else { Ok(()) }
}

impl Device {
    /// Whether the device, or a member of a meta device, is implemented in Rust: its results, and what its memory holds,
    /// are the implementation's word.
    pub(crate) fn is_driven(self) -> bool {
        ANY.load(Ordering::Acquire) && (find(self).is_some() || meta::members(self).iter().any(|d| find(*d).is_some()))
    }
}
