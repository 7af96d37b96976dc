//! Events: points in a backend's queue that other backends of its device can wait for.

use std::cell::RefCell;
use std::sync::Arc;

use ggml_sys as sys;

use super::Backend;
use super::raw::{RawBackend, RawEvent};
use crate::buffer::Buffer;
use crate::callback;
use crate::debug::debug;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::guard;
use crate::guard::guarded;

/// A point in a backend's queue (`ggml_backend_event_t`).
///
/// [`Event::record`] puts it behind all submitted work of a backend. [`Backend::wait`] makes another backend of the
/// same device wait for that work, and [`Event::synchronize`] the calling thread.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::Event;
/// let device = Device::best()?;
/// if device.capabilities()?.events {
///     let (mut first, mut second) = (device.init()?, device.init()?);
///     let mut event = Event::new(device)?;
///     event.record(&mut first)?;
///     second.wait(&event)?; // what `second` gets from now on comes after the work of `first`
/// } else {
///     assert!(Event::new(device).is_err(), "as on a CPU, which computes at once");
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_event_t")]
#[doc(alias = "ggml_backend_event_free")]
pub struct Event {
    raw: Arc<RawEvent>,
    device: Device,
    recorded: bool,
    /// An idle backend that waits for the event on Vulkan. C's own wait writes to the queue of the recording backend,
    /// which may be freed or in use on another thread. This cell makes the event not `Sync`, as it must be: devices
    /// don't lock their events.
    waiter: RefCell<Option<RawBackend>>,
}

impl Event {
    /// An event of the device (`ggml_backend_event_new`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no events ([`Capabilities::events`](crate::Capabilities::events)).
    #[doc(alias = "ggml_backend_event_new")]
    pub fn new(device: Device) -> Result<Self> {
        callback::check_reentry("Event::new")?;
        if !device.capabilities()?.events {
            return Err(Error::unsupported("Event::new", [], device.name(), "the device has no events"));
        }
        // SAFETY: devices are never freed; the result is ours.
        let raw = unsafe { guarded!(new, sys::ggml_backend_event_new(device.as_ptr())) }
            .map_err(|error| device.check_alive().err().unwrap_or(error))?;
        let raw = Arc::new(RawEvent(raw));
        device.check_alive()?;
        let waiter = if device.is_vulkan() { Some(RawBackend::init(device, None)?) } else { None };
        Ok(Self { raw, device, recorded: false, waiter: RefCell::new(waiter) })
    }

    /// The device that the event belongs to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Puts the event behind all submitted work of `backend` (`ggml_backend_event_record`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the backend's device is another one.
    #[doc(alias = "ggml_backend_event_record")]
    pub fn record(&mut self, backend: &mut Backend) -> Result<()> {
        callback::check_reentry("Event::record")?;
        backend.check()?;
        self.check(backend, "Event::record")?;
        // SAFETY: backend and event are live, of one device (`check`, H33). The backend keeps the event while its queue
        // needs it.
        unsafe { guarded!(call, sys::ggml_backend_event_record(self.raw.as_ptr(), backend.as_ptr())) }?;
        backend.hold(&self.raw);
        self.device.check_alive()?;
        self.recorded = true;
        Ok(())
    }

    /// Waits until the work before the event is done (`ggml_backend_event_synchronize`). Returns at once if the event
    /// was never recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] if the device fails.
    #[doc(alias = "ggml_backend_event_synchronize")]
    pub fn synchronize(&self) -> Result<()> {
        callback::check_reentry("Event::synchronize")?;
        match &mut *self.waiter.borrow_mut() {
            _ if !self.recorded => {}
            Some(waiter) => self.wait_by(waiter)?,
            None => guard::call("ggml_backend_event_synchronize", || {
                // SAFETY: the event is live by the type's invariant. It was recorded (checked above); else some devices
                // never return.
                unsafe { sys::ggml_backend_event_synchronize(self.raw.as_ptr()) }
            })?,
        }
        self.device.check_alive()
    }

    /// Waits for the event through `waiter`, an idle backend.
    fn wait_by(&self, waiter: &mut RawBackend) -> Result<()> {
        if waiter.leaked {
            return Err(Error::Poisoned { object: "event" });
        }
        // SAFETY: event and backend are live and of one device; the backend finishes with the event before this
        // function returns.
        let waited = unsafe { guarded!(call, sys::ggml_backend_event_wait(waiter.as_ptr(), self.raw.as_ptr())) };
        waited.and_then(|()| waiter.synchronize()).inspect_err(|_| waiter.leaked = true)
    }

    fn check(&self, backend: &Backend, call: &'static str) -> Result<()> {
        if backend.device() == self.device {
            return Ok(());
        }
        Err(Error::unsupported(
            call,
            [],
            backend.device().name(),
            format!("the event belongs to {}", self.device.name()),
        ))
    }
}

impl Backend {
    /// Makes the backend's later work wait for the work before `event` (`ggml_backend_event_wait`). Does nothing if the
    /// event was never recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the event belongs to another device.
    #[doc(alias = "ggml_backend_event_wait")]
    pub fn wait(&mut self, event: &Event) -> Result<()> {
        callback::check_reentry("Backend::wait")?;
        self.check()?;
        event.check(self, "Backend::wait")?;
        if event.recorded {
            // SAFETY: backend and event are live, and of one device (`check`, H33). The backend keeps the event until
            // its queue is empty.
            unsafe { guarded!(call, sys::ggml_backend_event_wait(self.as_ptr(), event.raw.as_ptr())) }?;
            self.hold(&event.raw);
        }
        self.device.check_alive()
    }

    /// Keeps an event alive until all submitted work is done.
    fn hold(&mut self, event: &Arc<RawEvent>) {
        if !self.events.iter().any(|e| Arc::ptr_eq(e, event)) {
            self.events.push(Arc::clone(event));
        }
    }
}

/// Waits until a Vulkan device is idle, even if a backend is unusable: all backends share the device's queues.
pub(super) fn drain(device: Device) -> Result<()> {
    let mut event = Event::new(device)?;
    let Some(mut waiter) = event.waiter.get_mut().take() else { return Ok(()) };
    // SAFETY: event and backend are live and of one device; the backend finishes with the event before this function
    // returns.
    unsafe { guarded!(reentrant, sys::ggml_backend_event_record(event.raw.as_ptr(), waiter.as_ptr())) }?;
    waiter.wait_idle().inspect_err(|_| waiter.leaked = true)?;
    // This allocation also waits for the device's transfer queue, if it has one.
    Buffer::zeroed(device.buffer_type(), 1 << 10).map(drop)
}

debug!(Event, |this| device = &this.device, recorded = &this.recorded);
