//! The device to test, and the CPU to compare it with.

use std::sync::OnceLock;

use ggml::prelude::*;

use crate::fake_gpu::{self, FakeOptions};
use crate::host_cpu;

/// The default device: one that exists everywhere, if possible with memory of its own.
const USUAL: &str = if cfg!(all(feature = "rpc", not(feature = "dynamic-backends"))) { "RPC" } else { "CPU" };

/// The device from the environment variable `GGML_TEST_DEVICE`, else the default one.
pub fn device() -> Device {
    chosen(USUAL)
}

/// The same, else the CPU.
pub fn here() -> Device {
    chosen("CPU")
}

/// Whether tests are to run on another device than they do by default.
pub fn is_chosen() -> bool {
    std::env::var_os("GGML_TEST_DEVICE").is_some()
}

fn chosen(usual: &str) -> Device {
    load();
    let name = std::env::var("GGML_TEST_DEVICE").unwrap_or_else(|_| usual.into());
    if name == "FAKE" {
        return fakes()[0];
    }
    if name == "HOST" {
        static HOST: OnceLock<Device> = OnceLock::new();
        return *HOST.get_or_init(|| host_cpu::device().0);
    }
    #[cfg(feature = "rpc")]
    if name == "RPC" {
        return served();
    }
    Device::by_name(&name).unwrap()
}

/// Members for a meta device: [`here`] several times, or as many GPUs in Rust.
pub fn members(n: usize) -> Vec<Device> {
    if std::env::var("GGML_TEST_DEVICE").is_ok_and(|name| name == "FAKE") {
        static MEMBERS: OnceLock<[Device; 6]> = OnceLock::new();
        // All-reduces need ordered copies: docs/driver.md.
        return MEMBERS.get_or_init(|| watched(FakeOptions { ordered: true, ..FakeOptions::default() }))[..n].to_vec();
    }
    vec![here(); n]
}

/// The relative error that the chosen device's own roundings may make: GPUs multiply `f32` with fewer bits.
pub fn rounding() -> f64 {
    let is_gpu =
        std::env::var("GGML_TEST_DEVICE").is_ok_and(|name| name.starts_with("CUDA") || name.starts_with("ROCm"));
    if is_gpu { 2e-2 } else { 0.0 }
}

/// A scheduler over [`here`], and over the CPU behind it if that is another device, with a thread.
pub fn sched() -> Sched {
    let near = limited(Backend::cpu().unwrap());
    let builder =
        if here() == near.device() { Sched::builder() } else { Sched::builder().backend(here().init().unwrap()) };
    builder.backend(near).build().unwrap()
}

/// The backend with one thread, if it has threads.
pub fn limited(mut backend: Backend) -> Backend {
    if let Err(error) = backend.set_threads(1) {
        assert!(error.to_string().contains("have threads"), "{error}");
    }
    backend
}

/// Two GPUs in Rust, which copy to each other as CUDA's do.
pub fn fakes() -> [Device; 2] {
    static FAKES: OnceLock<[Device; 2]> = OnceLock::new();
    *FAKES.get_or_init(|| watched(FakeOptions::default()))
}

/// GPUs in Rust with delays. If any has a race, the process fails in the end.
fn watched<const N: usize>(options: FakeOptions) -> [Device; N] {
    fake_gpu::fail_on_races();
    fake_gpu::devices(options).map(|(device, control)| {
        control.set_delays(true);
        device
    })
}

/// The CPU behind a server in this process, which counts as a separate device.
#[cfg(feature = "rpc")]
pub fn served() -> Device {
    use ggml::rpc;
    static SERVED: OnceLock<(rpc::Server, rpc::Connection)> = OnceLock::new();
    let (_, connection) = SERVED.get_or_init(|| {
        let server = rpc::Server::builder().start().unwrap();
        let connection = rpc::connect(&server.address().to_string()).unwrap();
        (server, connection)
    });
    *connection.devices().first().unwrap()
}

/// The CPU.
pub fn cpu() -> Backend {
    load();
    Backend::cpu().unwrap()
}

#[cfg(feature = "dynamic-backends")]
fn load() {
    use std::sync::Once;
    static LOADED: Once = Once::new();
    LOADED.call_once(|| match std::env::var_os("GGML_TEST_BACKENDS") {
        // SAFETY: whoever sets the folder vouches for its files.
        Some(folder) => unsafe { ggml::Registry::load_all_from(folder) }.unwrap(),
        None => drop(ggml::Registry::load_all().unwrap()),
    });
}

#[cfg(not(feature = "dynamic-backends"))]
fn load() {}

/// Loads the backends of a bundle for a machine with a GPU (`cargo xtask gpu-bundle`) before any test begins: tests that name no
/// device don't call [`load`].
#[cfg(all(feature = "dynamic-backends", target_os = "linux"))]
#[used]
// SAFETY: the section holds functions that take no argument, or ones that they may ignore.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn start() {
        if std::env::var_os("GGML_TEST_BACKENDS").is_some() {
            load();
        }
    }
    start
};
