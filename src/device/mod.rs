//! Devices: they hold tensors and compute.

pub(crate) mod driven;
mod features;
mod free;
mod load;
#[cfg(feature = "rpc")]
pub(crate) mod lost;
mod memory;
pub(crate) mod meta;
pub(crate) mod named;
mod nature;
pub(crate) mod registry;
mod vulkan;

use std::fmt;
use std::mem::zeroed;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::callback;
use crate::debug::debug;
use crate::error::{Error, Result};
use crate::ffi;
use crate::guard::guarded;
use crate::header::TensorPtr;

pub use features::{Features, features};
pub use free::Memory;
pub use memory::BufferType;
pub use registry::Registry;

pub(crate) use memory::{check_alive, fills_words, out_of_memory, type_of};

/// A device: a CPU, a GPU, an accelerator, or a device of an RPC server (`ggml_backend_dev_t`).
///
/// A handle to an object that is never freed; copying it is free.
///
/// ```
/// # use ggml::prelude::*;
/// for device in Device::all()? {
///     println!("{device}: {}", device.description());
/// }
/// let best = Device::best()?; // a GPU, if there is one
/// assert!(Device::all()?.contains(&best));
/// assert_eq!(Device::cpu()?.name(), "CPU");
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_dev_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device(NonNull<sys::ggml_backend_device>);

// SAFETY: devices are immutable objects that ggml never frees (only the unsafe `Registry::unload` does), and their
// functions may be called from any thread (docs/safety.md, "Threads").
unsafe impl Send for Device {}
// SAFETY: devices are immutable, and their functions may be called from any thread (docs/safety.md, "Threads").
unsafe impl Sync for Device {}

/// The kinds of devices.
///
/// ```
/// # use ggml::prelude::*;
/// let kind = DeviceType::Cpu;
/// assert_eq!(Device::by_type(kind)?.device_type(), kind);
/// let gpus = Device::all()?.into_iter().filter(|d| d.device_type() == DeviceType::Gpu);
/// println!("{} GPUs", gpus.count());
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_dev_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceType {
    /// The CPU, using system memory.
    Cpu,
    /// A GPU with its own memory; devices of RPC servers count as such.
    Gpu,
    /// A GPU that uses system memory.
    IntegratedGpu,
    /// Works together with the CPU on system memory, such as BLAS.
    Accelerator,
    /// A meta device: several devices for tensor parallelism.
    Meta,
    /// A type that this version of the crate doesn't know.
    Other(u32),
}

/// A device's optional capabilities.
///
/// ```
/// # use ggml::prelude::*;
/// let can = Device::cpu()?.capabilities()?;
/// assert!(can.buffer_from_host, "weights can stay in a mapped file");
/// assert!(!can.async_compute && !can.events, "`compute` returns when the work is done");
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_dev_caps")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "ggml's own list of independent capabilities")]
pub struct Capabilities {
    /// The device's location, if known: `domain:bus:device.function` in lower case for PCI devices.
    pub id: Option<String>,
    /// Whether the device computes asynchronously.
    pub async_compute: bool,
    /// Whether the device has pinned host memory.
    pub host_buffer: bool,
    /// Whether the device can use host memory as a buffer, zero-copy.
    pub buffer_from_host: bool,
    /// Whether the device has events that backends can wait for.
    pub events: bool,
    /// Whether the device can use a file mapping as a buffer.
    pub mmap: bool,
}

impl Device {
    /// # Safety
    ///
    /// `raw` must be NULL, or a device that is never freed, such as those in ggml's registry.
    pub(crate) unsafe fn from_raw(raw: *mut sys::ggml_backend_device) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    pub(crate) fn as_ptr(self) -> *mut sys::ggml_backend_device {
        self.0.as_ptr()
    }

    /// All devices (`ggml_backend_dev_count`, `ggml_backend_dev_get`).
    ///
    /// # Errors
    ///
    /// [`Error::Cpu`] if the CPU lacks features that ggml was compiled for; [`Error::Ggml`] or [`Error::Exception`] if
    /// a backend fails to start.
    #[doc(alias = "ggml_backend_dev_count")]
    #[doc(alias = "ggml_backend_vk_get_device_count")]
    #[doc(alias = "ggml_backend_dev_get")]
    pub fn all() -> Result<Vec<Self>> {
        callback::check_reentry("Device::all")?;
        registry::devices()
    }

    /// The device with this name, such as `CPU`, `CUDA0`, `Vulkan0` or `RPC0`, ignoring case
    /// (`ggml_backend_dev_by_name`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// assert_eq!(Device::by_name("cpu")?, Device::cpu()?);
    /// match Device::by_name("CUDA0") {
    ///     Ok(gpu) => println!("{gpu}"),
    ///     Err(Error::NoSuch { available, .. }) => println!("there are {available:?}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the existing names; else as [`Device::all`].
    #[doc(alias = "ggml_backend_dev_by_name")]
    pub fn by_name(name: &str) -> Result<Self> {
        callback::check_reentry("Device::by_name")?;
        let all = Self::all()?;
        registry::named("device", &all, Self::name, name)
    }

    /// The first device of a type that is not lost (`ggml_backend_dev_by_type`).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the existing devices; else as [`Device::all`].
    #[doc(alias = "ggml_backend_dev_by_type")]
    pub fn by_type(kind: DeviceType) -> Result<Self> {
        callback::check_reentry("Device::by_type")?;
        let all: Vec<_> = Self::all()?.into_iter().filter(|device| device.check_alive().is_ok()).collect();
        all.iter().copied().find(|d| d.device_type() == kind).ok_or_else(|| Error::NoSuch {
            what: "device type",
            name: format!("{kind:?}").into(),
            available: all.iter().map(|d| format!("{} ({:?})", d.name(), d.device_type()).into()).collect(),
        })
    }

    /// The first GPU, else the first integrated GPU, else the CPU: the order of `ggml_backend_init_best`.
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`].
    pub fn best() -> Result<Self> {
        callback::check_reentry("Device::best")?;
        Self::by_type(DeviceType::Gpu).or_else(|_| Self::by_type(DeviceType::IntegratedGpu)).or_else(|_| Self::cpu())
    }

    /// The CPU device.
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`].
    pub fn cpu() -> Result<Self> {
        callback::check_reentry("Device::cpu")?;
        Self::by_type(DeviceType::Cpu)
    }

    /// The name, such as `CPU` or `CUDA0` (`ggml_backend_dev_name`).
    #[doc(alias = "ggml_backend_dev_name")]
    pub fn name(self) -> String {
        if let Some(name) = meta::name(self) {
            return name;
        }
        // SAFETY: devices and their names are never freed.
        unsafe { ffi::text_of(sys::ggml_backend_dev_name, self.as_ptr()) }
    }

    /// A description of the device (`ggml_backend_dev_description`).
    #[doc(alias = "ggml_backend_dev_description")]
    #[doc(alias = "ggml_backend_cuda_get_device_description")]
    #[doc(alias = "ggml_backend_vk_get_device_description")]
    pub fn description(self) -> String {
        // SAFETY: devices and their descriptions are never freed.
        unsafe { ffi::text_of(sys::ggml_backend_dev_description, self.as_ptr()) }
    }

    /// The device's type (`ggml_backend_dev_type`).
    #[doc(alias = "ggml_backend_dev_type")]
    #[doc(alias = "ggml_backend_is_meta")]
    #[doc(alias = "ggml_backend_buffer_is_meta")]
    #[doc(alias = "ggml_backend_buft_is_meta")]
    pub fn device_type(self) -> DeviceType {
        // SAFETY: devices are never freed; the call only reads it.
        match unsafe { sys::ggml_backend_dev_type(self.as_ptr()) } {
            sys::GGML_BACKEND_DEVICE_TYPE_CPU => DeviceType::Cpu,
            sys::GGML_BACKEND_DEVICE_TYPE_GPU => DeviceType::Gpu,
            sys::GGML_BACKEND_DEVICE_TYPE_IGPU => DeviceType::IntegratedGpu,
            sys::GGML_BACKEND_DEVICE_TYPE_ACCEL => DeviceType::Accelerator,
            sys::GGML_BACKEND_DEVICE_TYPE_META => DeviceType::Meta,
            other => DeviceType::Other(other),
        }
    }

    /// The device's memory (`ggml_backend_dev_memory`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::Exception`] if the device doesn't answer.
    #[doc(alias = "ggml_backend_dev_memory")]
    #[doc(alias = "ggml_backend_rpc_get_device_memory")]
    #[doc(alias = "ggml_backend_cuda_get_device_memory")]
    #[doc(alias = "ggml_backend_vk_get_device_memory")]
    pub fn memory(self) -> Result<Memory> {
        callback::check_reentry("Device::memory")?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: devices are never freed; C writes both numbers and keeps nothing.
        unsafe { guarded!(call, sys::ggml_backend_dev_memory(self.as_ptr(), &raw mut free, &raw mut total)) }?;
        self.check_alive()?;
        // A server or a driver may report any numbers.
        Ok(Memory { free: free.min(total), total })
    }

    /// The device's optional capabilities (`ggml_backend_dev_get_props`).
    ///
    /// # Errors
    ///
    /// As [`Device::memory`].
    #[doc(alias = "ggml_backend_dev_get_props")]
    pub fn capabilities(self) -> Result<Capabilities> {
        callback::check_reentry("Device::capabilities")?;
        // SAFETY: zeros are valid for all fields: pointers, numbers and booleans.
        let mut props: sys::ggml_backend_dev_props = unsafe { zeroed() };
        // SAFETY: devices are never freed; C fills `props` and keeps nothing.
        unsafe { guarded!(call, sys::ggml_backend_dev_get_props(self.as_ptr(), &raw mut props)) }?;
        self.check_alive()?;
        // SAFETY: the location is NULL, or a string of the device, which is never freed.
        let id = unsafe { ffi::string(props.device_id) };
        let c = props.caps;
        Ok(Capabilities {
            id: (!id.is_empty()).then_some(id),
            async_compute: c.async_,
            host_buffer: c.host_buffer,
            buffer_from_host: c.buffer_from_host_ptr,
            events: c.events,
            mmap: c.mmap_support,
        })
    }

    /// The registry that the device belongs to; none for meta devices (`ggml_backend_dev_backend_reg`).
    #[doc(alias = "ggml_backend_dev_backend_reg")]
    pub fn registry(self) -> Option<Registry> {
        // SAFETY: devices are never freed; the call only reads it.
        let raw = unsafe { sys::ggml_backend_dev_backend_reg(self.as_ptr()) };
        // SAFETY: the result is NULL, or the registry of a device, which is never freed.
        unsafe { Registry::from_raw(raw) }
    }

    /// The device's default buffer type (`ggml_backend_dev_buffer_type`).
    #[doc(alias = "ggml_backend_dev_buffer_type")]
    #[doc(alias = "ggml_backend_get_default_buffer_type")]
    #[doc(alias = "ggml_backend_cpu_buffer_type")]
    #[doc(alias = "ggml_backend_rpc_buffer_type")]
    #[doc(alias = "ggml_backend_cuda_buffer_type")]
    #[doc(alias = "ggml_backend_vk_buffer_type")]
    pub fn buffer_type(self) -> BufferType {
        if let Some(buft) = meta::buffer_type(self) {
            return buft;
        }
        // SAFETY: devices are never freed; the call only reads it.
        let raw = unsafe { sys::ggml_backend_dev_buffer_type(self.as_ptr()) };
        // SAFETY: every device has a default buffer type, which is never freed.
        unsafe { BufferType::from_raw(raw) }
    }

    /// The host buffer type with the fastest copies to and from the device, such as pinned memory for a GPU, if it has
    /// one (`ggml_backend_dev_host_buffer_type`).
    #[doc(alias = "ggml_backend_dev_host_buffer_type")]
    #[doc(alias = "ggml_backend_cuda_host_buffer_type")]
    #[doc(alias = "ggml_backend_vk_host_buffer_type")]
    pub fn host_buffer_type(self) -> Option<BufferType> {
        if self.is_vulkan() && !vulkan::has_host_memory() {
            return None;
        }
        // SAFETY: devices are never freed; the call only reads it.
        let raw = unsafe { sys::ggml_backend_dev_host_buffer_type(self.as_ptr()) };
        // SAFETY: `raw` is not NULL (checked here), and a buffer type, which is never freed.
        (!raw.is_null()).then(|| unsafe { BufferType::from_raw(raw) })
    }

    /// Whether the device claims to run `op`. `op` must have its sources.
    pub(crate) fn claims(self, op: TensorPtr) -> Result<bool> {
        // SAFETY: devices are never freed; tensor and sources live by TensorPtr's invariants. C keeps nothing.
        let claims = unsafe { guarded!(call, sys::ggml_backend_dev_supports_op(self.as_ptr(), op.as_ptr())) }?;
        self.check_alive()?;
        Ok(claims)
    }

    /// Whether the device can use tensors in this buffer type (`ggml_backend_dev_supports_buft`).
    #[doc(alias = "ggml_backend_dev_supports_buft")]
    #[doc(alias = "ggml_backend_supports_buft")]
    pub fn supports_buffer_type(self, buft: BufferType) -> bool {
        // C reports the memory of a meta device of CPUs as host memory, but its buffers have no addresses.
        if buft.device().is_some_and(meta::is_meta) && !meta::is_meta(self) {
            return false;
        }
        // SAFETY: neither device nor buffer type is ever freed; the call only reads them.
        unsafe { sys::ggml_backend_dev_supports_buft(self.as_ptr(), buft.as_ptr()) }
    }
}

/// Converts a device to the buffer type of its own memory ([`Device::buffer_type`]).
impl From<Device> for BufferType {
    fn from(device: Device) -> Self {
        device.buffer_type()
    }
}

/// Converts a device to the buffer type of its own memory, for closures that may also return `None`, such as that of
/// [`Load::load`](crate::gguf::Load::load).
impl From<Device> for Option<BufferType> {
    fn from(device: Device) -> Self {
        Some(device.buffer_type())
    }
}

debug!(Device(name));

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}
