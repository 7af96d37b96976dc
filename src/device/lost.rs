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

/// Why a connection to an RPC server failed, with the error that caused it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionError {
    pub(crate) reason: Cow<'static, str>,
    pub(crate) source: Option<IoError>,
}

impl ConnectionError {
    /// An error with this reason, which already says what matters about `source`, its cause.
    pub(crate) fn new(reason: String, source: io::Error) -> Self {
        Self { reason: reason.into(), source: Some(source.into()) }
    }

    /// An error whose reason is the text `what: source`.
    pub(crate) fn caused(what: impl fmt::Display, source: io::Error) -> Self {
        Self::new(format!("{what}: {source}"), source)
    }

    /// The error for an RPC server at `endpoint` that can't be reached or started.
    pub(crate) fn of(self, endpoint: impl fmt::Display) -> Error {
        Error::Rpc { endpoint: endpoint.to_string().into(), reason: self.reason, source: self.source }
    }
}

impl<T: Into<Cow<'static, str>>> From<T> for ConnectionError {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), source: None }
    }
}

/// The state of an RPC server, shared by all that use the server.
#[derive(Debug)]
pub(crate) struct Remote {
    endpoint: Box<str>,
    /// Why the server was lost. The relay sets this once, before it sends the client the first byte that doesn't come
    /// from the server.
    lost: OnceLock<ConnectionError>,
}

impl Remote {
    pub(crate) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), lost: OnceLock::new() }
    }

    /// Fails if the server was lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.get().cloned().map_or(Ok(()), |ConnectionError { reason, source }| {
            Err(Error::RpcLost { endpoint: self.endpoint.clone(), reason, source })
        })
    }

    /// The reason why the server was lost, or `None`.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(|error| &*error.reason)
    }

    /// Marks the server as lost. The first reason is kept.
    pub(crate) fn mark_lost(&self, error: ConnectionError) {
        self.lost.get_or_init(|| error);
        ANY_LOST.store(true, Ordering::Release);
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

/// Whether any server was ever lost. Until then, no lock is taken.
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
