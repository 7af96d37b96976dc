//! Meta devices, and what this process records of them.

use std::any::TypeId;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml_sys as sys;

use super::lock::MetaLockGuard;
use super::place::{Splits, on_split_state};
use super::raw;
use super::split::SplitMode;
use crate::callback;
use crate::device::BufferType;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, TensorInfo};
use crate::guard::guarded;
use crate::lock::Lock;

/// A meta device: several devices for tensor parallelism (`ggml_backend_meta_device`). See the [module](crate::meta).
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::meta::{MetaDevice, SplitMode};
/// let cpu = Device::cpu()?; // twice, in place of two GPUs
/// let meta = MetaDevice::new(&[cpu, cpu], |_| SplitMode::Even { axis: 1 })?; // each gets half of the rows
/// assert_eq!((meta.members().len(), meta.device().device_type()), (2, DeviceType::Meta));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_meta_get_split_state_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MetaDevice(Device);

/// This crate's record of a meta device. Like the device, it is never freed.
pub(crate) struct MetaDeviceInfo {
    device: Device,
    buft: BufferType,
    /// Whether C reports the meta device's memory as host memory. It does so if all members are CPUs.
    host: bool,
    pub(crate) splits: &'static Splits,
    /// The type of the closure, if it captures nothing: then the type identifies the closure.
    closure: Option<TypeId>,
}

/// All meta devices; there are few.
static KNOWN: Lock<Vec<&'static MetaDeviceInfo>> = Lock::new(Vec::new());

/// Whether there are meta devices. As long as there are none, no lock is taken.
static ANY: AtomicBool = AtomicBool::new(false);

impl MetaDeviceInfo {
    pub(crate) fn is_host(&self) -> bool {
        self.host
    }
}

impl MetaDevice {
    /// The maximum number of members (`GGML_BACKEND_META_MAX_DEVICES`).
    pub const MAX_DEVICES: usize = sys::GGML_BACKEND_META_MAX_DEVICES as usize;

    /// Combines several devices into one. `split` decides how each weight tensor is split among them, when it is placed
    /// on the meta device. A device may be listed several times.
    ///
    /// The result is never freed, and keeps the closure.
    ///
    /// ```
    /// use ggml::meta::{MetaDevice, SplitMode};
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let cpu = Device::cpu()?;
    /// let meta = MetaDevice::new(&[cpu, cpu], |_| SplitMode::Mirrored)?;
    /// assert_eq!(meta.device().name(), "Meta(CPU,CPU)");
    /// assert!(MetaDevice::new(&[cpu], |_| SplitMode::Mirrored).is_err(), "one is not several");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`] unless there are 2 to [`MetaDevice::MAX_DEVICES`] devices, each a CPU or a GPU (as an RPC
    /// server's devices are); [`Error::RpcLost`] if one is lost.
    #[doc(alias = "ggml_backend_meta_device")]
    pub fn new<F>(devices: &[Device], split: F) -> Result<Self>
    where
        F: Fn(&TensorInfo) -> SplitMode + Send + Sync + 'static,
    {
        callback::check_reentry("MetaDevice::new")?;
        let closure = (size_of::<F>() == 0).then(TypeId::of::<F>);
        check(devices)?;
        if let Some(known) = find(|k| closure.is_some() && k.closure == closure && *k.splits.members == *devices) {
            return Ok(Self(known.device));
        }
        let splits = Box::new(Splits::new(devices, Box::new(split)));
        let alone = MetaLockGuard::wait("MetaDevice::new", false)?;
        // Leaked, because C keeps the address and never frees a device.
        let splits: &'static Splits = Box::leak(splits);
        let mut list: Vec<_> = devices.iter().map(|d| d.as_ptr()).collect();
        let user: *const Splits = splits;
        let user = user.cast_mut().cast::<c_void>();
        // SAFETY: the devices are never freed, are 16 at most (`check`), and C copies the list. C keeps the function
        // and `user`, which is leaked. No other thread uses its global list of devices: we hold the lock.
        let device = unsafe {
            guarded!(call, sys::ggml_backend_meta_device(list.as_mut_ptr(), list.len(), Some(on_split_state), user))
        }?;
        // SAFETY: C never frees a meta device.
        let device = unsafe { Device::from_raw(device) };
        let device = device.ok_or(Error::Null { call: "ggml_backend_meta_device", log: Box::default() })?;
        // SAFETY: the device is never freed; no other thread uses C's list of buffer types: we hold the lock.
        let buft = unsafe { guarded!(call, sys::ggml_backend_dev_buffer_type(device.as_ptr())) }?;
        drop(alone);
        // SAFETY: every device has a buffer type, which is never freed.
        let buft = unsafe { BufferType::from_raw(buft) };
        let buft = raw::asking(buft, devices).unwrap_or(buft);
        // SAFETY: buffer types are never freed; the call only reads it.
        let host = unsafe { sys::ggml_backend_buft_is_host(buft.as_ptr()) };
        let known: &'static MetaDeviceInfo =
            Box::leak(Box::new(MetaDeviceInfo { device, buft, host, splits, closure }));
        KNOWN.lock().push(known);
        ANY.store(true, Ordering::Release);
        Ok(Self(device))
    }

    /// The meta device as a [`Device`].
    pub fn device(self) -> Device {
        self.0
    }

    /// The members, in the order in which they were given.
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

/// Checks that the devices can be combined. All must be able to add partial sums.
fn check(devices: &[Device]) -> Result<()> {
    let computes =
        |d: &Device| matches!(d.device_type(), DeviceType::Cpu | DeviceType::Gpu | DeviceType::IntegratedGpu);
    if (2..=MetaDevice::MAX_DEVICES).contains(&devices.len()) && devices.iter().all(computes) {
        return devices.iter().try_for_each(|d| d.check_alive());
    }
    Err(Error::param(
        "MetaDevice::new",
        "devices",
        format!("{devices:?}"),
        format!("it takes 2 to {} devices, each a CPU or a GPU", MetaDevice::MAX_DEVICES),
    ))
}

/// Whether there are meta devices.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

fn find(is: impl Fn(&MetaDeviceInfo) -> bool) -> Option<&'static MetaDeviceInfo> {
    if !any() {
        return None;
    }
    KNOWN.lock().iter().copied().find(|k| is(k))
}

pub(crate) fn known(device: Device) -> Option<&'static MetaDeviceInfo> {
    find(|k| k.device == device)
}

/// Whether the device is a meta device.
pub(crate) fn is_meta(device: Device) -> bool {
    known(device).is_some()
}

/// The members of a meta device; none for any other device.
pub(crate) fn members(device: Device) -> &'static [Device] {
    known(device).map_or(&[], |k| &k.splits.members)
}

/// The name of a meta device, with the names of its members, which C's name lacks.
pub(crate) fn name(device: Device) -> Option<String> {
    let names: Vec<_> = known(device)?.splits.members.iter().map(|d| d.name()).collect();
    Some(format!("Meta({})", names.join(",")))
}

/// The buffer type of a meta device. C would look it up in a list that another thread may be extending.
pub(crate) fn buffer_type(device: Device) -> Option<BufferType> {
    known(device).map(|k| k.buft)
}

/// Whether C reports a meta device's memory as host memory, though its buffers have no addresses.
pub(crate) fn is_host(device: Device) -> bool {
    known(device).is_some_and(MetaDeviceInfo::is_host)
}

/// Refuses a meta device, before an operation that ggml doesn't support for them.
pub(crate) fn before_use(call: &'static str, device: Device, reason: &'static str) -> Result<()> {
    if known(device).is_none() {
        return Ok(());
    }
    Err(Error::unsupported(call, [], device.name(), reason))
}
