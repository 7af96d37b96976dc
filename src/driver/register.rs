//! Makes devices of drivers.

use std::sync::OnceLock;

use ggml_sys as sys;

use super::raw::device::{self, RegState};
use super::state::{BASE, DeviceState, c_string};
use super::{Driver, DriverInfo};
use crate::callback;
use crate::device::driven::{self, Driven};
use crate::device::{BufferType, Device, DeviceType, Registry, registry};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::{guard, log};

/// The names of ggml's own registries, whether built in or not. By a registry's name this crate knows what its devices
/// do.
const TAKEN: &[&str] = &[
    "BLAS", "CANN", "CPU", "CUDA", "ET", "HIP", "HTP", "METAL", "META", "MTL", "MUSA", "OPENCL", "OPENVINO", "ROCM",
    "SYCL", "VIRTGPU", "VULKAN", "WEBGPU", "ZDNN", "ZENDNN",
];

impl Registry {
    /// Makes devices of `drivers` and adds them to ggml's lists, as a registry called `name`
    /// (`ggml_backend_register`). They exist until the program ends.
    ///
    /// # Errors
    ///
    /// [`Error::Duplicate`] if the name of the registry, or one of a device, is in use or is one of ggml's own;
    /// [`Error::Param`] for an empty name or one with a NUL, no drivers, a device type other than an accelerator or a
    /// GPU, or an alignment that is no power of two up to 2¹⁶; else as [`Registry::all`].
    ///
    /// # Panics
    ///
    /// Where [`Driver::info`] panics.
    #[doc(alias = "ggml_backend_register")]
    pub fn register<D: Driver>(name: &str, drivers: impl IntoIterator<Item = D>) -> Result<Self> {
        callback::check_reentry("Registry::register")?;
        // The driver's code runs here, before anything is locked.
        let drivers: Vec<_> = drivers.into_iter().map(|driver| (driver.info(), driver)).collect();
        log::public(|| {
            // One thread registers at a time, so that no other takes a name in between. After an error the lock is
            // released before the drivers are dropped.
            let _alone = ADDING.lock();
            check(name, &drivers.iter().map(|(info, _)| info).collect::<Vec<_>>())?;
            add(name, drivers)
        })
    }
}

static ADDING: Lock<()> = Lock::new(());

fn add<D: Driver>(name: &str, drivers: Vec<(DriverInfo, D)>) -> Result<Registry> {
    let reg: &'static RegState = Box::leak(Box::new(RegState { name: c_string(name), devices: OnceLock::new() }));
    let raw = device::registry(reg);
    let states: Box<[&'static DeviceState<D>]> =
        drivers.into_iter().map(|(info, driver)| state(info, driver)).collect();
    let mut devices = Vec::with_capacity(states.len());
    for state in &states {
        let dev = device::device(raw, state);
        let buft = device::memory_type(dev, state);
        // SAFETY: the device is leaked, so it is never freed.
        let Some(device) = (unsafe { Device::from_raw(dev) }) else { continue };
        // SAFETY: the buffer type is leaked, or it is the CPU's, which is static.
        let buft = unsafe { BufferType::from_raw(buft) };
        state.raw.get_or_init(|| (device, buft));
        state.siblings.get_or_init(|| states.clone());
        devices.push(device);
        driven::attach(device, &state.driven);
    }
    reg.devices.get_or_init(|| devices.into());
    registry::locked(|| {
        guard::call("ggml_backend_register", || {
            // SAFETY: the registry is complete and never freed; `locked` holds the lock on C's lists. C calls the functions
            // that name and count devices, which are not the driver's.
            unsafe { sys::ggml_backend_register(raw) }
        })
    })?;
    // SAFETY: `device::registry` leaked the registry.
    unsafe { Registry::from_raw(raw) }.ok_or(Error::Null { call: "ggml_backend_register", log: Box::default() })
}

fn state<D: Driver>(info: DriverInfo, driver: D) -> &'static DeviceState<D> {
    Box::leak(Box::new(DeviceState {
        driver,
        name: c_string(&info.name),
        description: c_string(&info.description),
        driven: Driven::new(&info.name),
        info,
        raw: OnceLock::new(),
        siblings: OnceLock::new(),
    }))
}

const CALL: &str = "Registry::register";

fn check(name: &str, infos: &[&DriverInfo]) -> Result<()> {
    valid_name("name", name)?;
    let upper = name.to_uppercase();
    let registries = Registry::all()?;
    let taken = upper.starts_with("RPC") || TAKEN.contains(&&*upper);
    if taken || registries.iter().any(|r| r.name().eq_ignore_ascii_case(name)) {
        return Err(Error::Duplicate { call: CALL, what: "registry", name: name.into() });
    }
    let mut names: Vec<_> = Device::all()?.into_iter().map(|d| d.name().to_lowercase()).collect();
    let before = names.len();
    for info in infos {
        valid_name("device name", &info.name)?;
        if names.contains(&info.name.to_lowercase()) {
            return Err(Error::Duplicate { call: CALL, what: "device", name: info.name.as_str().into() });
        }
        names.push(info.name.to_lowercase());
        let kinds = [DeviceType::Gpu, DeviceType::IntegratedGpu, DeviceType::Accelerator];
        param(kinds.contains(&info.kind), "kind", &info.kind, "it must be an accelerator or a GPU")?;
        let fits = info.alignment.is_power_of_two() && info.alignment <= BASE;
        param(fits, "alignment", &info.alignment, "it must be a power of two up to 65536")?;
        param(info.max_size > 0, "max_size", &info.max_size, "it must not be 0")?;
    }
    param(names.len() > before, "drivers", &"empty", "there must be one at least")
}

fn valid_name(what: &'static str, name: &str) -> Result<()> {
    param(!name.is_empty() && !name.contains('\0'), what, &name, "it must not be empty, nor contain a NUL")
}

fn param(holds: bool, name: &'static str, value: &dyn std::fmt::Debug, expected: &'static str) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::Param { call: CALL, name, value: format!("{value:?}").into(), expected: expected.into() })
}
