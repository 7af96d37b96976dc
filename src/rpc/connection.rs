//! Connecting to servers, once each.

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::link::Link;
use super::options::Options;
use super::own;
use super::peer::{self, Peer};
use super::raw::RawServer;
use super::relay::Relay;
use super::survey::Survey;
use super::traffic::Traffic;
use crate::callback;
use crate::debug::debug;
use crate::device::Device;
use crate::device::lost::{self, ConnectionError};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::log;

/// A server that ggml was told of.
#[derive(Debug)]
struct KnownServer {
    link: Arc<Link>,
    survey: Survey,
    devices: Vec<Device>,
    /// `None` if ggml connects to the server directly.
    relay: Option<Relay>,
}

/// The servers that ggml knows, including lost ones: ggml never forgets a server. [`connect_with`] holds this lock
/// throughout.
static KNOWN: Lock<Vec<Arc<KnownServer>>> = Lock::new(Vec::new());

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
    callback::check_reentry("rpc::connect")?;
    connect_with(endpoint, &Options::new())
}

/// Connects to the RPC server at `endpoint`, a `host:port`, and adds its devices to those of [`Device::all`]
/// (`ggml_backend_rpc_add_server`, `ggml_backend_register`).
///
/// A second connection to the same server shares the first one's devices and options, with TLS if both have clones of
/// the same `Tls` and name the same host. After the server was lost, its
/// devices stay lost while a [`Connection`], backend or buffer of it exists: a new connection then creates new devices.
/// When all of those are dropped and the server offers the same devices, a new connection reuses the old ones, because
/// ggml never frees a device. A connection that fails leaves nothing behind: ggml is told of a server only after it has
/// answered everything that ggml asks.
///
/// Connections are made one at a time: this call waits for others that are connecting.
///
/// ```
/// # use ggml::prelude::*;
/// use std::time::Duration;
/// use ggml::rpc::{self, Options, Server};
///
/// # let server = Server::builder().start()?;
/// # let address = server.address().to_string();
/// let patient = Options::new().with_connect_timeout(Duration::from_secs(30));
/// let connection = rpc::connect_with(&address, &patient)?;
/// assert_eq!(connection.endpoint(), address);
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Rpc`] if the name can't be resolved, nobody listens, no answer came in time, or the answer does not follow
/// the protocol of this version of ggml. Otherwise as [`Device::all`].
#[doc(alias = "ggml_backend_rpc_add_server")]
#[doc(alias = "ggml_backend_register")]
pub fn connect_with(endpoint: &str, options: &Options) -> Result<Connection> {
    callback::check_reentry("rpc::connect_with")?;
    let addresses = peer::resolve(endpoint).map_err(|fault| fault.of(endpoint))?;
    let mut known = KNOWN.lock();
    let there = known.iter().find(|known| {
        let link = &known.link;
        let there = link.lost().is_none() && addresses.contains(&link.address());
        #[cfg(feature = "rpc-tls")]
        let there = there && options.shares(endpoint, link.options(), link.endpoint());
        there
    });
    if let Some(connection) = there.and_then(Connection::renew) {
        return Ok(connection);
    }
    Connection::open(endpoint, &addresses, options, &mut known)
}

impl KnownServer {
    /// Returns a relay for this server over `peer`, and whether the relay is new to ggml. Reuses the relay of an
    /// earlier, lost connection to the same server if nothing uses it any more.
    fn relay(&self, peer: Peer, known: &mut Vec<Arc<Self>>) -> Result<(Relay, bool)> {
        let mut peer = Some(peer);
        let left = known.iter().position(|former| {
            former.link.lost().is_some()
                && former.link.address() == self.link.address()
                && former.survey == self.survey
                && former.relay.as_ref().is_some_and(|relay| relay.renew(&self.link, &mut peer))
        });
        if let Some(relay) = left.and_then(|left| known.swap_remove(left).relay.clone()) {
            return Ok((relay, false));
        }
        let fail =
            |e| ConnectionError::caused("the relay in this process could not be started", e).of(self.link.endpoint());
        let peer = peer.ok_or_else(|| fail(io::ErrorKind::NotConnected.into()))?;
        Ok((Relay::start(Arc::clone(&self.link), self.survey.clone(), peer).map_err(fail)?, true))
    }
}

/// A connection to an RPC server: gives access to its devices and reserves the server.
///
/// While a `Connection` exists, this process stays a client of the server, even if nothing of it is stored there. That
/// reserves servers that have one client at a time, as ggml's own. After the last one is dropped, it stays a client while
/// buffers or backends of the server exist. The devices stay valid, and ggml reconnects when they are used again.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::rpc::{self, Server};
/// let server = Server::builder().start()?;
/// let connection = rpc::connect(&server.address().to_string())?;
/// for device in connection.devices() {
///     println!("{device} on {}", connection.endpoint());
/// }
/// assert!(connection.check().is_ok(), "the server answers");
/// # Ok::<(), ggml::Error>(())
/// ```
pub struct Connection {
    known: Arc<KnownServer>,
}

impl Connection {
    fn open(
        endpoint: &str,
        addresses: &[SocketAddr],
        options: &Options,
        known: &mut Vec<Arc<KnownServer>>,
    ) -> Result<Self> {
        let fail = |fault: ConnectionError| fault.of(endpoint);
        #[cfg(feature = "rpc-tls")]
        if options.tls.is_some() && !options.uses_relay() {
            return Err(fail("ggml itself knows no TLS, which needs the relay (`Options::with_relay`)".into()));
        }
        let (mut peer, address) = peer::open(endpoint, addresses, options).map_err(fail)?;
        let link = Arc::new(Link::new(endpoint, address, options.clone()));
        let survey = Survey::make(&mut peer, &link).map_err(fail)?;
        if own::is_short_of_handles(peer.stream()) {
            return Err(fail("this process has hardly any file handles left; close some, or raise the limit".into()));
        }
        // From here on a `Connection` is created on every path, and its drop releases the hold.
        link.hold();
        let mut ours = KnownServer { link, survey, devices: Vec::new(), relay: None };
        if !options.uses_relay() {
            // ggml's own server has one client at a time, so ggml can connect only after we disconnect.
            drop(peer);
            let registered = if address.is_ipv4() {
                add_server(address, endpoint).and_then(|server| register_devices(server, &ours.link))
            } else {
                Err(fail(format!("{address} is IPv6, which needs the relay (`Options::with_relay`)").into()))
            };
            return registered.map(|devices| Self::keep(KnownServer { devices, ..ours }, known));
        }
        let (relay, is_new) = ours.relay(peer, known)?;
        ours.relay = Some(relay.clone());
        let server = add_server(relay.address(), endpoint);
        let is_told = server.is_ok() || !is_new;
        match server.and_then(|server| register_devices(server, &ours.link)) {
            Ok(devices) => Ok(Self::keep(KnownServer { devices, ..ours }, known)),
            Err(error) => {
                if is_told {
                    ours.link.mark_lost("its devices could not be listed when it was connected to".into());
                    drop(Self::keep(ours, known));
                } else {
                    relay.stop();
                }
                Err(error)
            }
        }
    }

    /// Records a server that ggml now knows, and returns a connection to it.
    fn keep(server: KnownServer, known: &mut Vec<Arc<KnownServer>>) -> Self {
        let server = Arc::new(server);
        log::note(::log::Level::Debug, || {
            format!("connected to {}, devices: {}", server.link.endpoint(), server.devices.len())
        });
        known.push(Arc::clone(&server));
        Self { known: server }
    }

    /// Another connection to a known server; `None` if the server turns out to be lost.
    fn renew(known: &Arc<KnownServer>) -> Option<Self> {
        let held_already = known.link.hold() > 0;
        let connection = Self { known: Arc::clone(known) };
        // If no `Connection` held the server, the TCP connection may have been closed. A request reopens it, or detects
        // the loss.
        let there = held_already || known.devices.first().is_none_or(|device| device.memory().is_ok());
        there.then_some(connection)
    }

    /// The server's devices, in the server's order.
    pub fn devices(&self) -> &[Device] {
        &self.known.devices
    }

    /// The `host:port` that was passed to [`connect`].
    pub fn endpoint(&self) -> &str {
        self.known.link.endpoint()
    }

    /// The traffic with the server through the relay, summed over all its devices and connections; `None` without the
    /// relay.
    ///
    /// Uploads and computations may still run after their call returns. They are certainly counted after a later read
    /// has returned.
    pub fn traffic(&self) -> Option<Traffic> {
        self.known.relay.as_ref().map(|_| self.known.link.traffic.read())
    }

    /// Whether the server was reachable when it was last used. Sends no request.
    ///
    /// # Errors
    ///
    /// [`Error::RpcLost`] once the server was lost, permanently.
    pub fn check(&self) -> Result<()> {
        self.known.link.check()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.known.link.release();
        if let Some(relay) = &self.known.relay {
            relay.disconnect_if_free();
        }
    }
}

debug!(Connection, |this| endpoint = &this.endpoint(), devices = &this.devices(), lost = &this.known.link.lost());

/// Makes ggml connect to `target`: the relay or the server of `endpoint`.
fn add_server(target: SocketAddr, endpoint: &str) -> Result<RawServer> {
    let fail = |fault: ConnectionError| fault.of(endpoint);
    let target = CString::new(target.to_string()).map_err(|e| fail(e.to_string().into()))?;
    match RawServer::add(&target) {
        Ok(Some(server)) => Ok(server),
        Ok(None) => Err(fail("ggml found no devices".into())),
        // Caused by a lack of file handles or threads: the server's answers were checked before.
        Err(e @ (Error::Ggml { .. } | Error::Exception { .. })) => {
            Err(fail(ConnectionError::caused("ggml could not connect", io::Error::other(e))))
        }
        Err(e) => Err(e),
    }
}

/// Makes ggml list and register the devices of a server.
fn register_devices(server: RawServer, link: &Arc<Link>) -> Result<Vec<Device>> {
    let devices = server.devices()?;
    lost::attach(&devices, &link.server);
    server.register()?;
    Ok(devices)
}
