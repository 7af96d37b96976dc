//! Meta devices, and what this process knows of them.

use std::any::TypeId;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml_sys as sys;

use super::lock::Alone;
use super::place::{Splits, on_split_state};
use super::split::Split;
use crate::device::BufferType;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, TensorInfo};
use crate::guard;
use crate::lock::Lock;

/// Several devices that work as one (`ggml_backend_meta_device`). See the [module](crate::meta).
#[doc(alias = "ggml_backend_meta_get_split_state_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MetaDevice(Device);

/// What is known of a meta device. It lives for ever, as the device does.
pub(crate) struct Known {
    device: Device,
    buft: BufferType,
    /// Whether C takes its memory for the host's, as it does where all devices are CPUs.
    host: bool,
    pub(crate) splits: &'static Splits,
    /// For a closure that captures nothing, its type: that says which closure it is.
    closure: Option<TypeId>,
}

/// All there are, few as they are.
static KNOWN: Lock<Vec<&'static Known>> = Lock::new(Vec::new());

/// Whether there are any: spares everyone else the lock.
static ANY: AtomicBool = AtomicBool::new(false);

impl Known {
    pub(crate) fn is_host(&self) -> bool {
        self.host
    }
}

impl MetaDevice {
    /// The most devices that can work as one (`GGML_BACKEND_META_MAX_DEVICES`).
    pub const MAX_DEVICES: usize = sys::GGML_BACKEND_META_MAX_DEVICES as usize;

    /// Makes several devices work as one: `split` says how each tensor of weights is divided among them, when it is placed
    /// in the device's memory. One device may be there several times.
    ///
    /// The result is never freed, and keeps the closure.
    ///
    /// ```
    /// use ggml::meta::{MetaDevice, Split};
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let cpu = Device::cpu()?;
    /// let meta = MetaDevice::new(&[cpu, cpu], |_| Split::Mirrored)?;
    /// assert_eq!(meta.device().name(), "Meta(CPU,CPU)");
    /// assert!(MetaDevice::new(&[cpu], |_| Split::Mirrored).is_err(), "one is not several");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`] unless there are 2 to [`MetaDevice::MAX_DEVICES`] devices, each a CPU or a GPU (as those of RPC servers
    /// are); [`Error::RpcLost`] where one is lost.
    #[doc(alias = "ggml_backend_meta_device")]
    pub fn new<F>(devices: &[Device], split: F) -> Result<Self>
    where
        F: Fn(&TensorInfo) -> Split + Send + Sync + 'static,
    {
        let closure = (size_of::<F>() == 0).then(TypeId::of::<F>);
        check(devices)?;
        if let Some(known) = find(|k| closure.is_some() && k.closure == closure && *k.splits.members == *devices) {
            return Ok(Self(known.device));
        }
        // For ever, as C keeps the address: it frees no device.
        let splits: &'static Splits = Box::leak(Box::new(Splits::new(devices, Box::new(split))));
        let alone = Alone::wait("MetaDevice::new", false)?;
        let mut raw: Vec<_> = devices.iter().map(|d| d.as_ptr()).collect();
        let user: *const Splits = splits;
        let user = user.cast_mut().cast::<c_void>();
        let device = guard::call("ggml_backend_meta_device", || {
            // SAFETY: the devices live for ever, are 16 at most, and C copies the list. It keeps the function and `user`, which
            // live for ever too. Its list of devices is used by nobody else: we hold the lock.
            unsafe { sys::ggml_backend_meta_device(raw.as_mut_ptr(), raw.len(), Some(on_split_state), user) }
        })?;
        // SAFETY: C never frees such a device.
        let device = unsafe { Device::from_raw(device) };
        let device = device.ok_or(Error::Null { call: "ggml_backend_meta_device", log: Box::default() })?;
        let buft = guard::call("ggml_backend_dev_buffer_type", || {
            // SAFETY: the device lives for ever; nobody else uses C's list of types: we hold the lock.
            unsafe { sys::ggml_backend_dev_buffer_type(device.as_ptr()) }
        })?;
        drop(alone);
        // SAFETY: every device has a type of memory, which lives as long as it does.
        let buft = unsafe { BufferType::from_raw(buft) };
        // SAFETY: the type lives for ever; the call only reads it.
        let host = unsafe { sys::ggml_backend_buft_is_host(buft.as_ptr()) };
        let known: &'static Known = Box::leak(Box::new(Known { device, buft, host, splits, closure }));
        KNOWN.lock().push(known);
        ANY.store(true, Ordering::Release);
        Ok(Self(device))
    }

    /// The device that they are together.
    pub fn device(self) -> Device {
        self.0
    }

    /// The devices that it is made of.
    pub fn members(self) -> &'static [Device] {
        members(self.0)
    }
}

impl From<MetaDevice> for Device {
    fn from(meta: MetaDevice) -> Self {
        meta.0
    }
}

impl fmt::Debug for MetaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetaDevice").field(&self.members()).finish()
    }
}

/// Checks that devices can work as one. All must be able to add up results.
fn check(devices: &[Device]) -> Result<()> {
    let computes =
        |d: &Device| matches!(d.device_type(), DeviceType::Cpu | DeviceType::Gpu | DeviceType::IntegratedGpu);
    if (2..=MetaDevice::MAX_DEVICES).contains(&devices.len()) && devices.iter().all(computes) {
        return devices.iter().try_for_each(|d| d.check_alive());
    }
    Err(Error::Param {
        op: "MetaDevice::new",
        name: "devices",
        value: format!("{devices:?}").into(),
        expected: format!("it takes 2 to {} devices, CPUs or GPUs", MetaDevice::MAX_DEVICES).into(),
    })
}

/// Whether there are meta devices.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

fn find(is: impl Fn(&Known) -> bool) -> Option<&'static Known> {
    if !any() {
        return None;
    }
    KNOWN.lock().iter().copied().find(|k| is(k))
}

pub(crate) fn known(device: Device) -> Option<&'static Known> {
    find(|k| k.device == device)
}

/// Whether it is a meta device.
pub(crate) fn is_meta(device: Device) -> bool {
    known(device).is_some()
}

/// The devices that a meta device is made of; none for any other.
pub(crate) fn members(device: Device) -> &'static [Device] {
    known(device).map_or(&[], |k| &k.splits.members)
}

/// Its name: C gives the names of no devices.
pub(crate) fn name(device: Device) -> Option<String> {
    let names: Vec<_> = known(device)?.splits.members.iter().map(|d| d.name()).collect();
    Some(format!("Meta({})", names.join(",")))
}

/// Its type of memory: C looks it up in a list that another thread may be extending.
pub(crate) fn buffer_type(device: Device) -> Option<BufferType> {
    known(device).map(|k| k.buft)
}

/// Whether C takes its memory for the host's, though there are no addresses.
pub(crate) fn is_host(device: Device) -> bool {
    known(device).is_some_and(Known::is_host)
}

/// Checks that a device is no meta device, before it is used for what ggml's code for those can't do.
pub(crate) fn before_use(op: &'static str, device: Device, reason: &'static str) -> Result<()> {
    if known(device).is_none() {
        return Ok(());
    }
    Err(Error::unsupported(op, [], device.name(), reason))
}
