//! The calls into ggml's RPC backend: the only file of this module with `unsafe` blocks.

use std::ffi::CStr;
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::device::named::named;
use crate::device::{Device, Registry, registry};
use crate::error::Result;
use crate::guard;
use crate::guard::guarded;

/// A server as ggml's client sees it: a registry of its own, which ggml never frees.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawServer(NonNull<sys::ggml_backend_reg>);

impl RawServer {
    /// Makes ggml's client connect to `endpoint` and list its devices; `None` if there are none. A second call with the
    /// same endpoint returns the same server.
    pub(super) fn add(endpoint: &CStr) -> Result<Option<Self>> {
        const CALL: &str = "ggml_backend_rpc_add_server";
        let rpc = Registry::by_name("RPC")?;
        let add = rpc.function(named!(c"ggml_backend_rpc_add_server" as ggml_backend_rpc_add_server(_)))?;
        let raw = guard::call(CALL, || {
            // SAFETY: `endpoint` is a NUL-terminated string that lives during the call; C copies it.
            unsafe { add(endpoint.as_ptr()) }
        })?;
        Ok(NonNull::new(raw).map(Self))
    }

    /// Lists the devices and creates their default buffer types: ggml then asks the server for alignment and maximum
    /// size; later calls only look them up.
    pub(super) fn devices(self) -> Result<Vec<Device>> {
        // SAFETY: `self.0` came from `add`, and ggml never frees a registry; the call only reads it.
        let n = unsafe { guarded!(call, sys::ggml_backend_reg_dev_count(self.0.as_ptr())) }?;
        let mut devices = Vec::with_capacity(n);
        for i in 0..n {
            // SAFETY: ggml never frees a registry, its number of devices never changes, and `i` is below it.
            let raw = unsafe { guarded!(call, sys::ggml_backend_reg_dev_get(self.0.as_ptr(), i)) }?;
            // SAFETY: `raw` came from the registry above; ggml frees neither the device nor the buffer type.
            unsafe { guarded!(call, sys::ggml_backend_dev_buffer_type(raw)) }?;
            // SAFETY: `raw` is a device or NULL; ggml never frees the devices of a server.
            devices.extend(unsafe { Device::from_raw(raw) });
        }
        Ok(devices)
    }

    /// Adds the devices to ggml's list of all devices.
    pub(super) fn register(self) -> Result<()> {
        registry::locked(|| {
            // SAFETY: ggml never frees a registry, so the list may keep it; `registry::locked` locks the list.
            unsafe { guarded!(call, sys::ggml_backend_register(self.0.as_ptr())) }
        })
    }
}
