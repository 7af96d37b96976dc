//! The device to test, and the CPU to compare it with.

use ggml::prelude::*;

/// The default device: one that exists everywhere, if possible with memory of its own.
const USUAL: &str = if cfg!(all(feature = "rpc", not(feature = "dynamic-backends"))) { "RPC" } else { "CPU" };

/// The device from the environment.
pub fn device() -> Device {
    load();
    let name = std::env::var("GGML_TEST_DEVICE").unwrap_or_else(|_| USUAL.into());
    if name == "FAKE" {
        return fake();
    }
    #[cfg(feature = "rpc")]
    if name == "RPC" {
        return served();
    }
    Device::by_name(&name).unwrap()
}

/// A GPU in Rust.
fn fake() -> Device {
    static FAKE: std::sync::OnceLock<Device> = std::sync::OnceLock::new();
    *FAKE.get_or_init(|| {
        let [(device, control)] = crate::fake_gpu::devices(crate::fake_gpu::FakeOptions::default());
        control.set_delays(true);
        device
    })
}

/// The CPU behind a server in this process, which counts as a separate device.
#[cfg(feature = "rpc")]
pub fn served() -> Device {
    use ggml::rpc;
    use std::sync::OnceLock;
    static SERVED: OnceLock<(rpc::Server, rpc::Connection)> = OnceLock::new();
    let (_, connection) = SERVED.get_or_init(|| {
        // SAFETY: the server listens on the loopback only, and all programs of the test machine are trusted.
        let server = unsafe { rpc::Server::builder().start().unwrap() };
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
