//! llama.cpp's own RPC client, with its layers on a server: this crate's, and ggml's beside it.

use std::ffi::CString;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ggml::rpc::{Server, Stop};
use ggml::sys;

use crate::Result;
use crate::llama::Llama;

/// The tokens of a prompt and of the steps after it.
const TOKENS: &[i32] = &[7, 3, 11, 3, 20, 1, 9, 9, 15];

/// The number of logits that are the same, bit for bit, on this crate's server, on ggml's, and without one.
pub fn same_logits(llama: &Llama, file: &Path) -> Result<usize> {
    let local = llama.steps(file, TOKENS, None)?;
    let server = Server::builder().threads(1).start()?;
    let ours = llama.steps(file, TOKENS, Some(added(server.address())?))?;
    server.stop(Stop::Now);
    let theirs = llama.steps(file, TOKENS, Some(added(start_ggmls()?)?))?;
    for (name, logits) in [("this crate's server", &ours), ("ggml's server", &theirs)] {
        let differs = local.iter().zip(logits).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        if differs > 0 || logits.len() != local.len() {
            return Err(format!("{differs} of {} logits differ on {name}", local.len()).into());
        }
    }
    Ok(ours.len())
}

/// The first device of a server, as ggml's client finds it.
fn added(address: SocketAddr) -> Result<sys::ggml_backend_dev_t> {
    let endpoint = CString::new(address.to_string())?;
    // SAFETY: a C string, which ggml copies.
    let registry = unsafe { sys::ggml_backend_rpc_add_server(endpoint.as_ptr()) };
    if registry.is_null() {
        return Err(format!("ggml's client finds no server at {address}").into());
    }
    // SAFETY: a registry, which ggml keeps for ever.
    unsafe { sys::ggml_backend_register(registry) };
    // SAFETY: as above; a server has a device.
    Ok(unsafe { sys::ggml_backend_reg_dev_get(registry, 0) })
}

/// Starts ggml's server, which runs until the process ends.
fn start_ggmls() -> Result<SocketAddr> {
    // It can't say which port it chose.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let endpoint = CString::new(address.to_string())?;
    thread::spawn(move || {
        // SAFETY: the CPU's number among ggml's types of devices.
        let mut cpu = unsafe { sys::ggml_backend_dev_by_type(sys::GGML_BACKEND_DEVICE_TYPE_CPU) };
        // SAFETY: a C string and one live device, which outlive the call; no folder for a cache.
        unsafe { sys::ggml_backend_rpc_start_server(endpoint.as_ptr(), std::ptr::null(), 1, 1, &raw mut cpu) };
    });
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        if start.elapsed() > Duration::from_secs(30) {
            return Err("ggml's server does not listen".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(address)
}
