//! The calls into ggml's RPC backend: the only file of this module with `unsafe` blocks.

use std::ffi::CStr;
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::device::named::named;
use crate::device::{Device, Registry, registry};
use crate::error::Result;
use crate::{backend, guard};

/// A server as ggml's client knows it: a registry of its own, which ggml never frees.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawServer(NonNull<sys::ggml_backend_reg>);

impl RawServer {
    /// Makes ggml's client connect to `endpoint` and ask for its devices; `None` if there are none. Asking twice for the
    /// same endpoint gives the same.
    pub(super) fn add(endpoint: &CStr) -> Result<Option<Self>> {
        const CALL: &str = "ggml_backend_rpc_add_server";
        let rpc = Registry::by_name("RPC")?;
        let add = rpc.function(named!(c"ggml_backend_rpc_add_server" as ggml_backend_rpc_add_server(_)))?;
        let raw = guard::call(CALL, || {
            // SAFETY: the string lives during the call; C copies it.
            unsafe { add(endpoint.as_ptr()) }
        })?;
        Ok(NonNull::new(raw).map(Self))
    }

    /// The devices, each with its default buffer type made: that is when ggml asks the server for alignment and size, so
    /// that later calls only look them up.
    pub(super) fn devices(self) -> Result<Vec<Device>> {
        let n = guard::call("ggml_backend_reg_dev_count", || {
            // SAFETY: the registry lives for ever; the call only reads it.
            unsafe { sys::ggml_backend_reg_dev_count(self.0.as_ptr()) }
        })?;
        let mut devices = Vec::with_capacity(n);
        for i in 0..n {
            let raw = guard::call("ggml_backend_reg_dev_get", || {
                // SAFETY: the registry lives for ever and has `n` devices, always.
                unsafe { sys::ggml_backend_reg_dev_get(self.0.as_ptr(), i) }
            })?;
            guard::call("ggml_backend_dev_buffer_type", || {
                // SAFETY: the device lives for ever, and so does what it returns.
                unsafe { sys::ggml_backend_dev_buffer_type(raw) }
            })?;
            // SAFETY: ggml never frees the devices of a server.
            devices.extend(unsafe { Device::from_raw(raw) });
        }
        Ok(devices)
    }

    /// Puts the devices on ggml's list of all devices.
    pub(super) fn register(self) -> Result<()> {
        registry::locked(|| {
            guard::call("ggml_backend_register", || {
                // SAFETY: the registry lives for ever, as the list that now keeps it needs; we hold the lock over the list.
                unsafe { sys::ggml_backend_register(self.0.as_ptr()) }
            })
        })
    }
}

/// Serves `devices` on `endpoint`. Returns only if that can't be begun, or after a C++ exception.
///
/// # Safety
///
/// ggml's server trusts its clients: whoever can connect to `endpoint` must only send what ggml's own client sends.
pub(super) unsafe fn serve(endpoint: &CStr, threads: usize, devices: &[Device]) -> Result<()> {
    let rpc = Registry::by_name("RPC")?;
    // With backends loaded at run time the symbol can't be linked to.
    let start =
        rpc.function(named!(c"ggml_backend_rpc_start_server" as ggml_backend_rpc_start_server(_, _, _, _, _)))?;
    let mut raw: Vec<_> = devices.iter().map(|device| device.as_ptr()).collect();
    let (list, n) = (raw.as_mut_ptr(), raw.len());
    backend::numa::used();
    // An assertion stays final here: it may come out of a graph that worker threads are still computing.
    guard::serve("ggml_backend_rpc_start_server", || {
        // SAFETY: the endpoint and the list of `n` devices live during the call, the devices for ever; no cache directory
        // is NULL. That no client sends anything hostile is the caller's promise.
        unsafe { start(endpoint.as_ptr(), ptr::null(), threads, n, list) }
    })
}
