//! RPC servers of remote devices, and which of them were lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ggml_sys as sys;

use super::Device;
use crate::error::{Error, Result};
use crate::lock::Lock;

/// The state of a server, shared by all that use it.
#[derive(Debug)]
pub(crate) struct Remote {
    endpoint: Box<str>,
    /// Set once, by the relay, before it sends the first byte that doesn't come from the server.
    lost: OnceLock<Box<str>>,
}

impl Remote {
    pub(crate) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), lost: OnceLock::new() }
    }

    /// Fails if the server was lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost().map_or(Ok(()), |reason| {
            Err(Error::RpcLost { endpoint: self.endpoint.clone(), reason: reason.to_owned().into() })
        })
    }

    /// The reason why the server was lost, or `None`.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(|reason| &**reason)
    }

    /// Marks the server as lost. The first reason is kept.
    pub(crate) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason.into_boxed_str());
        ANY_LOST.store(true, Ordering::Release);
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

/// Whether any server was ever lost. Avoids the lock until then.
static ANY_LOST: AtomicBool = AtomicBool::new(false);

/// The server of each remote device, by the device's address. ggml frees no device, so no address is reused.
static LINKS: Lock<Option<HashMap<usize, Arc<Remote>>>> = Lock::new(None);

/// Records that `devices` are on `server`, and drops entries of lost servers that nothing uses.
pub(crate) fn attach(devices: &[Device], server: &Arc<Remote>) {
    let mut links = LINKS.lock();
    let links = links.get_or_insert_default();
    links.extend(devices.iter().map(|device| (device.as_ptr().addr(), Arc::clone(server))));
}

/// Whether `device` is on a server that this process has connected to.
pub(crate) fn is_remote(device: Device) -> bool {
    find(device.as_ptr(), |_| ()).is_some()
}

/// Fails if `device` is on a server that was lost. Called after every call that may have used the connection. Costs an
/// atomic load until the first loss, and a map lookup afterwards.
///
/// After a call that the server answers (an allocation, a read, a memory query), `Ok` means that the server sent the
/// answer. Uploads and computations have no answer: their loss shows at the next call that has one.
///
/// # Errors
///
/// [`Error::RpcLost`] once the server was lost, as long as anything of it exists.
pub(crate) fn check(device: *mut sys::ggml_backend_device) -> Result<()> {
    if ANY_LOST.load(Ordering::Acquire) { find(device, Remote::check).unwrap_or(Ok(())) } else { Ok(()) }
}

fn find<R>(device: *mut sys::ggml_backend_device, look: impl FnOnce(&Remote) -> R) -> Option<R> {
    let links = LINKS.lock();
    links.as_ref()?.get(&device.addr()).map(|server| look(server))
}
