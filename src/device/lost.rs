//! Servers of remote devices, and which of them were lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ggml_sys as sys;

use super::Device;
use crate::error::{Error, Result};
use crate::lock::Lock;

/// What is known of a server, whoever talks to it.
#[derive(Debug)]
pub(crate) struct Remote {
    endpoint: Box<str>,
    /// Set once, by the relay, before it sends the first byte that is not the server's.
    lost: OnceLock<Box<str>>,
}

impl Remote {
    pub(crate) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), lost: OnceLock::new() }
    }

    /// Fails once the server was lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost().map_or(Ok(()), |reason| {
            Err(Error::RpcLost { endpoint: self.endpoint.clone(), reason: reason.to_owned().into() })
        })
    }

    /// Why the server counts as lost, if it does.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(|reason| &**reason)
    }

    /// Raises the flags. The first reason stays.
    pub(crate) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason.into_boxed_str());
        ANY_LOST.store(true, Ordering::Release);
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

/// Whether any server was ever lost: spares everyone the lock as long as there is nothing to tell.
static ANY_LOST: AtomicBool = AtomicBool::new(false);

/// The server of each device that has one, by the device's address. ggml frees no device, so addresses stay taken.
static LINKS: Lock<Option<HashMap<usize, Arc<Remote>>>> = Lock::new(None);

/// Notes that `devices` are reached through `server`, and no longer through one that was lost and that nobody needs.
pub(crate) fn attach(devices: &[Device], server: &Arc<Remote>) {
    let mut links = LINKS.lock();
    let links = links.get_or_insert_default();
    links.extend(devices.iter().map(|device| (device.as_ptr().addr(), Arc::clone(server))));
}

/// Whether `device` is one of a server that was connected to.
pub(crate) fn is_remote(device: Device) -> bool {
    find(device.as_ptr(), |_| ()).is_some()
}

/// Fails if `device` is on a server that was lost: to be asked after every call that may have talked to the server.
/// An atomic load until the first loss, from then on a look into a map.
///
/// After a call that the server answers (an allocation, a read, a question for memory), `Ok` means that the answer was
/// the server's. Uploads and computations are not answered: their loss shows after the next call that is.
///
/// # Errors
///
/// [`Error::RpcLost`] once the server was lost, for as long as anything of it is left.
pub(crate) fn check(device: *mut sys::ggml_backend_device) -> Result<()> {
    if ANY_LOST.load(Ordering::Acquire) { find(device, Remote::check).unwrap_or(Ok(())) } else { Ok(()) }
}

fn find<R>(device: *mut sys::ggml_backend_device, look: impl FnOnce(&Remote) -> R) -> Option<R> {
    let links = LINKS.lock();
    links.as_ref()?.get(&device.addr()).map(|server| look(server))
}
