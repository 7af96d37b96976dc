//! What this process knows of a server: how to reach it, and whether it was lost.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ggml_sys as sys;

use super::options::Options;
use super::traffic::Counter;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::lock::Lock;

/// A server, shared by its relay, its devices and the user's [`Connection`](super::Connection)s.
#[derive(Debug)]
pub(super) struct Link {
    endpoint: Box<str>,
    address: SocketAddr,
    options: Options,
    /// Set once, by the relay, before it sends the first byte that is not the server's.
    lost: OnceLock<Box<str>>,
    /// The [`Connection`](super::Connection)s that want the server kept, even while nothing uses it.
    holders: AtomicUsize,
    /// What the relay exchanged with the server.
    pub(super) traffic: Counter,
}

impl Link {
    pub(super) fn new(endpoint: &str, address: SocketAddr, options: Options) -> Self {
        Self {
            endpoint: endpoint.into(),
            address,
            options,
            lost: OnceLock::new(),
            holders: AtomicUsize::new(0),
            traffic: Counter::default(),
        }
    }

    /// Fails once the server was lost.
    pub(super) fn check(&self) -> Result<()> {
        self.lost().map_or(Ok(()), |reason| {
            Err(Error::RpcLost { endpoint: self.endpoint.clone(), reason: reason.to_owned().into() })
        })
    }

    /// Why the server counts as lost, if it does.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(|reason| &**reason)
    }

    /// Raises the flags. The first reason stays.
    pub(super) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason.into_boxed_str());
        ANY_LOST.store(true, Ordering::Release);
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Counts one more who wants the server kept; returns how many there were.
    pub(super) fn hold(&self) -> usize {
        self.holders.fetch_add(1, Ordering::SeqCst)
    }

    /// Counts one less.
    pub(super) fn release(&self) {
        self.holders.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_held(&self) -> bool {
        self.holders.load(Ordering::SeqCst) > 0
    }
}

/// Whether any server was ever lost: spares everyone the lock as long as there is nothing to tell.
static ANY_LOST: AtomicBool = AtomicBool::new(false);

/// The link of each device of a server, by the device's address. ggml frees no device, so addresses stay taken.
static LINKS: Lock<Option<HashMap<usize, Arc<Link>>>> = Lock::new(None);

/// Notes that `devices` are reached through `link`, and no longer through one that was lost and that nobody needs.
pub(super) fn attach(devices: &[Device], link: &Arc<Link>) {
    let mut links = LINKS.lock();
    let links = links.get_or_insert_default();
    links.extend(devices.iter().map(|device| (device.as_ptr().addr(), Arc::clone(link))));
}

/// Whether `device` is one of a server that was connected to.
pub(super) fn is_remote(device: Device) -> bool {
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
    if ANY_LOST.load(Ordering::Acquire) { find(device, Link::check).unwrap_or(Ok(())) } else { Ok(()) }
}

fn find<R>(device: *mut sys::ggml_backend_device, look: impl FnOnce(&Link) -> R) -> Option<R> {
    let links = LINKS.lock();
    links.as_ref()?.get(&device.addr()).map(|link| look(link))
}
