//! The device's description.

use ggml::prelude::*;
use ggml::{Priority, Registry, Threads};

use crate::{backend, vulkan};

fn vulkan_device_has_name_and_type() {
    let device = vulkan();
    assert!(matches!(device.device_type(), DeviceType::Gpu | DeviceType::IntegratedGpu));
    assert!(Device::all().unwrap().contains(&device));
    assert_eq!(Device::best().unwrap(), device, "a GPU comes before the CPU");
    assert_eq!(Backend::best().unwrap().device(), device);
    let registry = Registry::by_name("vulkan").unwrap();
    assert_eq!(device.registry(), Some(registry));
    assert!(registry.features().unwrap().is_empty(), "it tells of none");
    assert!(registry.devices().unwrap().contains(&device));
    assert!(ggml::sys::BACKENDS.contains(&"vulkan"));
    assert!(!device.description().is_empty());
    assert_eq!(Backend::from_spec("vulkan0").unwrap().name(), "Vulkan0");
}

fn vulkan_device_has_separate_memory() {
    let memory = vulkan().memory().unwrap();
    assert!(memory.total > 1 << 26 && memory.free <= memory.total, "{memory:?}");
    let own = vulkan().buffer_type();
    assert!(!own.is_host() && vulkan().supports_buffer_type(own));
    assert_eq!(own.device(), Some(vulkan()));
    assert!(own.alignment().unwrap().is_power_of_two() && own.max_size().unwrap() > 1 << 20);
    let cpu = Device::cpu().unwrap();
    assert!(!cpu.supports_buffer_type(own) && !vulkan().supports_buffer_type(cpu.buffer_type()));
    let host = vulkan().host_buffer_type().unwrap();
    assert!(host.is_host() && cpu.supports_buffer_type(host));
}

fn vulkan_device_reports_its_capabilities() {
    let capabilities = vulkan().capabilities().unwrap();
    assert!(capabilities.async_compute && capabilities.host_buffer && capabilities.events);
    assert!(!capabilities.buffer_from_host);
}

fn vulkan_backend_has_no_threads() {
    let mut backend = backend();
    let lazy = Threads::new(2).with_priority(Priority::Low);
    assert!(matches!(backend.set_threads(2), Err(Error::Param { .. })));
    assert!(matches!(backend.set_threads(lazy), Err(Error::Param { .. })));
    assert_eq!(backend.threads(), 1);
}

testkit::trials! {
    vulkan_device_has_name_and_type,
    vulkan_device_has_separate_memory,
    vulkan_device_reports_its_capabilities,
    vulkan_backend_has_no_threads,
}
