//! Devices that are implemented in Rust (`driver/`): what lower layers must know of them.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml_sys as sys;

use super::{Device, Registry, meta};
use crate::error::{Error, Result};
use crate::lock::Lock;

/// The state of a device implemented in Rust, shared by all that use the device. Never freed, as the device is not.
#[derive(Debug)]
pub(crate) struct Driven {
    name: Box<str>,
    /// Why the device was lost; set once.
    lost: OnceLock<Box<str>>,
}

/// All devices implemented in Rust; there are few.
static ALL: Lock<Vec<(Device, &'static Driven)>> = Lock::new(Vec::new());

/// `ANY`: whether there are devices implemented in Rust. `ANY_LOST`: whether one of them was lost. Until then, no lock
/// is taken.
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

/// Whether the registry's devices are implemented in Rust.
pub(super) fn is_registry(registry: Registry) -> bool {
    ALL.lock().iter().any(|(d, _)| d.registry() == Some(registry))
}

/// Fails if the device is implemented in Rust and was lost.
pub(super) fn check(device: Device) -> Result<()> {
    if ANY_LOST.load(Ordering::Acquire) { find(device).map_or(Ok(()), Driven::check) } else { Ok(()) }
}

impl Device {
    /// Whether the device, or a member of a meta device, is implemented in Rust. Then nothing but the implementation
    /// vouches for its results and for the content of its memory.
    pub(crate) fn is_driven(self) -> bool {
        ANY.load(Ordering::Acquire) && (find(self).is_some() || meta::members(self).iter().any(|d| find(*d).is_some()))
    }

    /// Whether the device is a meta device all of whose members are implemented in Rust.
    pub(crate) fn is_of_drivers(self) -> bool {
        let members = meta::members(self);
        !members.is_empty() && members.iter().all(|d| d.is_driven())
    }
}

/// A buffer with its type and size.
type Stocked = (*mut sys::ggml_backend_buffer_type, usize, meta::Owned);

thread_local! {
    /// Buffers of devices implemented in Rust that this thread has made for C, which is about to allocate them.
    static STOCK: RefCell<Vec<Stocked>> = const { RefCell::new(Vec::new()) };
}

/// A guard for buffers that C gets when it allocates on this thread. Its drop frees those that C left.
pub(super) struct Stock(());

impl Stock {
    pub(super) fn of(buffers: impl Iterator<Item = Stocked>) -> Self {
        let buffers: Vec<_> = buffers.collect();
        // A thread that ends can keep no stock: the buffers are freed, and C asks the device for memory.
        let _gone = STOCK.try_with(|stock| stock.replace(buffers));
        Self(())
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        drop(STOCK.try_with(RefCell::take));
    }
}

/// Gives C the buffer of this type and size that this thread has made for it, if there is one.
pub(crate) fn from_stock(
    buft: *mut sys::ggml_backend_buffer_type,
    size: usize,
) -> Option<*mut sys::ggml_backend_buffer> {
    let take = |stock: &RefCell<Vec<Stocked>>| {
        let mut stock = stock.borrow_mut();
        let i = stock.iter().position(|(of, n, _)| (*of, *n) == (buft, size))?;
        Some(stock.swap_remove(i).2.into_raw())
    };
    STOCK.try_with(take).ok().flatten()
}
