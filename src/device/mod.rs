//! Devices: what can hold tensors and compute with them.

mod features;
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
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::{ffi, guard};

pub use features::{Features, features};
pub use memory::BufferType;
pub use registry::Registry;

pub(crate) use memory::{check_alive, fills_words, out_of_memory, type_of};

/// A device that ggml knows: a CPU, a GPU, an accelerator, a device on another host (`ggml_backend_dev_t`).
///
/// A handle to an object that lives as long as the process; copying it costs nothing.
#[doc(alias = "ggml_backend_dev_t")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device(NonNull<sys::ggml_backend_device>);

// SAFETY: devices are immutable objects that ggml never frees (nothing in the safe API unloads a backend), and their
// functions are safe to call from any thread (docs/safety.md, "Threads").
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The kinds of devices.
#[doc(alias = "ggml_backend_dev_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceType {
    /// The processor, using system memory.
    Cpu,
    /// A GPU with memory of its own; devices of RPC servers count as such.
    Gpu,
    /// A GPU that uses system memory.
    IntegratedGpu,
    /// Works together with the CPU on its memory, such as BLAS.
    Accelerator,
    /// Several devices behind one, for tensor parallelism.
    Meta,
    /// A kind that this version of the crate does not know.
    Other(u32),
}

/// What a device can do beside computing.
#[doc(alias = "ggml_backend_dev_caps")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "ggml's own list of independent capabilities")]
pub struct Capabilities {
    /// Where the device is, if that is known: for PCI devices `domain:bus:device.function` in lower case.
    pub id: Option<String>,
    /// Works asynchronously.
    pub async_compute: bool,
    /// Has pinned host memory.
    pub host_buffer: bool,
    /// Can use memory of the host's as a buffer.
    pub buffer_from_host: bool,
    /// Has events that backends can wait for.
    pub events: bool,
    /// Can use a file mapping as a buffer.
    pub mmap: bool,
}

/// A device's memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// What is free at the moment.
    pub free: usize,
    /// What there is.
    pub total: usize,
}

impl Device {
    /// # Safety
    ///
    /// `raw` must be NULL or a device of ggml's registry, or another one that is never freed.
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
    /// [`Error::Cpu`] where the processor lacks what ggml was compiled for; [`Error::Ggml`] or [`Error::Exception`] where
    /// a backend fails to start.
    #[doc(alias = "ggml_backend_dev_count")]
    #[doc(alias = "ggml_backend_vk_get_device_count")]
    #[doc(alias = "ggml_backend_dev_get")]
    pub fn all() -> Result<Vec<Self>> {
        registry::devices()
    }

    /// The device with this name, such as `CPU`, `CUDA0`, `Vulkan0` or `RPC0`; case does not matter
    /// (`ggml_backend_dev_by_name`).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the names there are; else as [`Device::all`].
    #[doc(alias = "ggml_backend_dev_by_name")]
    pub fn by_name(name: &str) -> Result<Self> {
        let all = Self::all()?;
        all.iter().copied().find(|d| d.name().eq_ignore_ascii_case(name)).ok_or_else(|| Error::NoSuch {
            what: "device",
            name: name.into(),
            available: all.iter().map(|d| d.name().into()).collect(),
        })
    }

    /// The first device of a kind (`ggml_backend_dev_by_type`).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the names there are; else as [`Device::all`].
    #[doc(alias = "ggml_backend_dev_by_type")]
    pub fn by_type(kind: DeviceType) -> Result<Self> {
        let all = Self::all()?;
        all.iter().copied().find(|d| d.device_type() == kind).ok_or_else(|| Error::NoSuch {
            what: "device of a kind",
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
        Self::by_type(DeviceType::Gpu).or_else(|_| Self::by_type(DeviceType::IntegratedGpu)).or_else(|_| Self::cpu())
    }

    /// The CPU.
    ///
    /// # Errors
    ///
    /// As [`Device::by_type`].
    pub fn cpu() -> Result<Self> {
        Self::by_type(DeviceType::Cpu)
    }

    /// The name, such as `CPU` or `CUDA0` (`ggml_backend_dev_name`).
    #[doc(alias = "ggml_backend_dev_name")]
    pub fn name(self) -> String {
        if let Some(name) = meta::name(self) {
            return name;
        }
        // SAFETY: a device lives for ever, and so does its name's owner; C returns a pointer that we copy from at once.
        let text = unsafe { sys::ggml_backend_dev_name(self.as_ptr()) };
        // SAFETY: a C string or NULL, see above.
        unsafe { ffi::string(text) }
    }

    /// What the device is, in words (`ggml_backend_dev_description`).
    #[doc(alias = "ggml_backend_dev_description")]
    #[doc(alias = "ggml_backend_cuda_get_device_description")]
    #[doc(alias = "ggml_backend_vk_get_device_description")]
    pub fn description(self) -> String {
        // SAFETY: as for the name.
        let text = unsafe { sys::ggml_backend_dev_description(self.as_ptr()) };
        // SAFETY: a C string or NULL, see above.
        unsafe { ffi::string(text) }
    }

    /// The kind of device (`ggml_backend_dev_type`).
    #[doc(alias = "ggml_backend_dev_type")]
    pub fn device_type(self) -> DeviceType {
        // SAFETY: the device lives for ever; the call only reads it.
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
    /// [`Error::Ggml`] or [`Error::Exception`] where the device does not answer.
    #[doc(alias = "ggml_backend_dev_memory")]
    #[doc(alias = "ggml_backend_rpc_get_device_memory")]
    #[doc(alias = "ggml_backend_cuda_get_device_memory")]
    #[doc(alias = "ggml_backend_vk_get_device_memory")]
    pub fn memory(self) -> Result<Memory> {
        let (mut free, mut total) = (0, 0);
        guard::call("ggml_backend_dev_memory", || {
            // SAFETY: the device lives for ever; C writes the two numbers and keeps nothing.
            unsafe { sys::ggml_backend_dev_memory(self.as_ptr(), &raw mut free, &raw mut total) }
        })?;
        self.check_alive()?;
        Ok(Memory { free, total })
    }

    /// What the device can do (`ggml_backend_dev_get_props`).
    ///
    /// # Errors
    ///
    /// As [`Device::memory`].
    #[doc(alias = "ggml_backend_dev_get_props")]
    pub fn capabilities(self) -> Result<Capabilities> {
        let mut props = sys::ggml_backend_dev_props {
            name: ptr::null(),
            description: ptr::null(),
            memory_free: 0,
            memory_total: 0,
            type_: sys::GGML_BACKEND_DEVICE_TYPE_CPU,
            device_id: ptr::null(),
            caps: sys::ggml_backend_dev_caps {
                async_: false,
                host_buffer: false,
                buffer_from_host_ptr: false,
                events: false,
                mmap_support: false,
            },
        };
        guard::call("ggml_backend_dev_get_props", || {
            // SAFETY: the device lives for ever; C fills `props` and keeps nothing.
            unsafe { sys::ggml_backend_dev_get_props(self.as_ptr(), &raw mut props) }
        })?;
        self.check_alive()?;
        // SAFETY: NULL, or a string of the device's, which lives for ever.
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
        // SAFETY: the device lives for ever; the call only reads it.
        let raw = unsafe { sys::ggml_backend_dev_backend_reg(self.as_ptr()) };
        // SAFETY: a registry lives as long as its devices do: for ever.
        unsafe { Registry::from_raw(raw) }
    }

    /// The type of memory that the device uses by default (`ggml_backend_dev_buffer_type`).
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
        // SAFETY: the device lives for ever; the call only reads it.
        let raw = unsafe { sys::ggml_backend_dev_buffer_type(self.as_ptr()) };
        // SAFETY: every device has a default buffer type, which lives as long as the device.
        unsafe { BufferType::from_raw(raw) }
    }

    /// The type of host memory that the device copies from and to fastest, such as pinned memory for a GPU, if it has one
    /// (`ggml_backend_dev_host_buffer_type`).
    #[doc(alias = "ggml_backend_dev_host_buffer_type")]
    #[doc(alias = "ggml_backend_cuda_host_buffer_type")]
    #[doc(alias = "ggml_backend_vk_host_buffer_type")]
    pub fn host_buffer_type(self) -> Option<BufferType> {
        if self.is_vulkan() && !vulkan::has_host_memory() {
            return None;
        }
        // SAFETY: the device lives for ever; the call only reads it.
        let raw = unsafe { sys::ggml_backend_dev_host_buffer_type(self.as_ptr()) };
        // SAFETY: a buffer type, unless NULL; it lives as long as the device.
        (!raw.is_null()).then(|| unsafe { BufferType::from_raw(raw) })
    }

    /// Whether the device says it can run `op`, which must carry its sources.
    pub(crate) fn claims(self, op: TensorPtr) -> Result<bool> {
        guard::call("ggml_backend_dev_supports_op", || {
            // SAFETY: the device lives for ever, the tensor and its sources by TensorPtr's invariants. C keeps nothing.
            unsafe { sys::ggml_backend_dev_supports_op(self.as_ptr(), op.as_ptr()) }
        })
    }

    /// Whether the device can use tensors in memory of this type (`ggml_backend_dev_supports_buft`).
    #[doc(alias = "ggml_backend_dev_supports_buft")]
    #[doc(alias = "ggml_backend_supports_buft")]
    pub fn supports_buffer_type(self, buft: BufferType) -> bool {
        // C takes what lies on several CPUs for host memory; there are no addresses (meta).
        if buft.device().is_some_and(meta::is_meta) && !meta::is_meta(self) {
            return false;
        }
        // SAFETY: both live for ever; the call only reads them.
        unsafe { sys::ggml_backend_dev_supports_buft(self.as_ptr(), buft.as_ptr()) }
    }
}

/// A device's own memory ([`Device::buffer_type`]).
impl From<Device> for BufferType {
    fn from(device: Device) -> Self {
        device.buffer_type()
    }
}

/// A device's own memory, for closures that may name none, such as that of
/// [`Reader::load`](crate::gguf::Reader::load).
impl From<Device> for Option<BufferType> {
    fn from(device: Device) -> Self {
        Some(device.buffer_type())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
