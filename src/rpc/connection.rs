//! Connecting to servers, once each.

use std::ffi::CString;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::link::Link;
use super::options::Options;
use super::peer;
use super::raw::RawServer;
use super::relay::Relay;
use super::traffic::Traffic;
use crate::device::{Device, lost};
use crate::error::{Error, Result};

/// A server that ggml knows.
#[derive(Debug)]
struct Known {
    link: Arc<Link>,
    devices: Vec<Device>,
    /// `None` where ggml talks to the server itself.
    relay: Option<Relay>,
}

/// The servers that ggml knows and that are not known to be lost. Whoever connects holds this throughout.
static KNOWN: Mutex<Vec<Arc<Known>>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<Arc<Known>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the RPC server at `endpoint`, a `host:port`, with the default [`Options`].
///
/// # Errors
///
/// As [`connect_with`].
///
/// # Examples
///
/// ```no_run
/// // Needs a server on another machine.
/// let server = ggml::rpc::connect("gpu-box.local:50052")?;
/// let backend = server.devices()[0].init()?;
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_rpc_add_server")]
pub fn connect(endpoint: &str) -> Result<Connection> {
    connect_with(endpoint, &Options::new())
}

/// Connects to the RPC server at `endpoint`, a `host:port`, and adds its devices to those of [`Device::all`]
/// (`ggml_backend_rpc_add_server`, `ggml_backend_register`).
///
/// A second connection to the same server shares the first one's devices and options. After the server was lost, a new
/// connection makes new devices; the old ones stay lost.
///
/// Connections are made one after the other: this waits for a call that is connecting elsewhere.
///
/// # Errors
///
/// [`Error::Rpc`] says why there is no connection: the name can't be resolved, nobody listens, no answer came in time, or
/// what came is not the protocol of this version of ggml. Otherwise as [`Device::all`].
#[doc(alias = "ggml_backend_rpc_add_server")]
#[doc(alias = "ggml_backend_register")]
pub fn connect_with(endpoint: &str, options: &Options) -> Result<Connection> {
    let addresses = peer::resolve(endpoint).map_err(|reason| failure(endpoint, reason))?;
    let mut known = known();
    known.retain(|known| known.link.lost().is_none());
    if let Some(known) = known.iter().find(|known| addresses.contains(&known.link.address()))
        && let Some(connection) = Connection::renew(known)
    {
        return Ok(connection);
    }
    let connection = Connection::open(endpoint, &addresses, options)?;
    known.push(Arc::clone(&connection.known));
    Ok(connection)
}

/// A hold on an RPC server: its devices, and that it stays ours.
///
/// A server has one client at a time. While a `Connection` is alive, the server is not given to another client, even when
/// nothing of this process's lies on it. After the last is dropped, that lasts as long as something does. The devices
/// stay valid, and ggml reconnects when they are used again.
pub struct Connection {
    known: Arc<Known>,
}

impl Connection {
    fn open(endpoint: &str, addresses: &[SocketAddr], options: &Options) -> Result<Self> {
        let fail = |reason: String| failure(endpoint, reason);
        let (peer, address) = peer::open(addresses, options).map_err(fail)?;
        let link = Arc::new(Link::new(endpoint, address, options.clone()));
        // From here on a `Connection` drops its hold whatever happens.
        link.hold();
        let mut known = Known { link, devices: Vec::new(), relay: None };
        let target = if options.uses_relay() {
            let (relay, target) = Relay::start(Arc::clone(&known.link), peer)
                .map_err(|e| fail(format!("the relay in this process could not be started: {e}")))?;
            known.relay = Some(relay);
            target
        } else if address.is_ipv4() {
            // The server must be free for ggml.
            drop(peer);
            address
        } else {
            return Err(fail(format!("{address} is IPv6, which needs the relay (`Options::relay`)")));
        };
        let introduced = introduce(target, &known.link);
        if let Ok(devices) = &introduced {
            known.devices.clone_from(devices);
        }
        let connection = Self { known: Arc::new(known) };
        introduced.map(|_| connection)
    }

    /// Another hold on a known server; `None` if it turns out to be lost.
    fn renew(known: &Arc<Known>) -> Option<Self> {
        let held_already = known.link.hold() > 0;
        let connection = Self { known: Arc::clone(known) };
        // A connection that nobody held may have been closed. A question opens it again, or shows the loss.
        let there = held_already || known.devices.first().is_none_or(|device| device.memory().is_ok());
        there.then_some(connection)
    }

    /// The server's devices, in its order.
    pub fn devices(&self) -> &[Device] {
        &self.known.devices
    }

    /// The address that the connection was asked for by.
    pub fn endpoint(&self) -> &str {
        self.known.link.endpoint()
    }

    /// What was exchanged with the server through the relay, for all its devices and by all who are connected; `None`
    /// without the relay.
    ///
    /// Uploads and computations are under way for a while after the call returns. They are counted for certain once
    /// something was read that came after them.
    pub fn traffic(&self) -> Option<Traffic> {
        self.known.relay.as_ref().map(|_| self.known.link.traffic.read())
    }

    /// Whether the server was there when it was last needed. Asks nothing of it.
    ///
    /// # Errors
    ///
    /// [`Error::RpcLost`], for ever, once the server was lost.
    pub fn check(&self) -> Result<()> {
        self.known.link.check()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.known.link.release();
        if let Some(relay) = &self.known.relay {
            relay.settle();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoint", &self.endpoint())
            .field("devices", &self.devices())
            .field("lost", &self.known.link.lost())
            .finish()
    }
}

/// Makes ggml connect to `target`, which is `link`'s relay or server, and list its devices.
fn introduce(target: SocketAddr, link: &Arc<Link>) -> Result<Vec<Device>> {
    let fail = |reason: &str| failure(link.endpoint(), reason.to_owned());
    let target = CString::new(target.to_string()).map_err(|e| fail(&e.to_string()))?;
    let server = RawServer::add(&target)?;
    let devices = server.map(RawServer::devices).transpose()?;
    if let Some(reason) = link.lost() {
        return Err(fail(reason));
    }
    let (Some(server), Some(devices)) = (server, devices) else {
        return Err(fail("it offers no devices"));
    };
    lost::attach(&devices, &link.server);
    server.register()?;
    Ok(devices)
}

fn failure(endpoint: &str, reason: String) -> Error {
    Error::Rpc { endpoint: endpoint.into(), reason: reason.into() }
}
