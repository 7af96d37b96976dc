//! RPC servers of remote devices, and which of them were lost.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{fmt, io};

use ggml_sys as sys;

use super::Device;
use crate::error::{Error, IoError, Result};
use crate::lock::Lock;

/// What went wrong with a connection, and the error that caused it.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) reason: Cow<'static, str>,
    pub(crate) source: Option<IoError>,
}

impl Fault {
    /// A fault whose reason already says what matters of its cause.
    pub(crate) fn new(reason: String, source: io::Error) -> Self {
        Self { reason: reason.into(), source: Some(source.into()) }
    }

    /// A fault whose reason is `what: source`.
    pub(crate) fn caused(what: impl fmt::Display, source: io::Error) -> Self {
        Self::new(format!("{what}: {source}"), source)
    }

    /// The error of an RPC server that can't be reached or started.
    pub(crate) fn of(self, endpoint: impl fmt::Display) -> Error {
        Error::Rpc { endpoint: endpoint.to_string().into(), reason: self.reason, source: self.source }
    }
}

impl<T: Into<Cow<'static, str>>> From<T> for Fault {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), source: None }
    }
}

/// The state of a server, shared by all that use it.
#[derive(Debug)]
pub(crate) struct Remote {
    endpoint: Box<str>,
    /// Set once, by the relay, before it sends the first byte that doesn't come from the server.
    lost: OnceLock<Fault>,
}

impl Remote {
    pub(crate) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), lost: OnceLock::new() }
    }

    /// Fails if the server was lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.get().cloned().map_or(Ok(()), |Fault { reason, source }| {
            Err(Error::RpcLost { endpoint: self.endpoint.clone(), reason, source })
        })
    }

    /// The reason why the server was lost, or `None`.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(|fault| &*fault.reason)
    }

    /// Marks the server as lost. The first reason is kept.
    pub(crate) fn mark_lost(&self, fault: Fault) {
        self.lost.get_or_init(|| fault);
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
