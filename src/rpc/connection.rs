//! Connecting to servers, once each.

use std::ffi::CString;
use std::fmt;
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
use crate::device::{Device, lost};
use crate::error::{Error, Result};
use crate::lock::Lock;

/// A server that ggml knows.
#[derive(Debug)]
struct Known {
    link: Arc<Link>,
    survey: Survey,
    devices: Vec<Device>,
    /// `None` where ggml talks to the server itself.
    relay: Option<Relay>,
}

/// The servers that ggml knows, those that were lost among them: ggml never forgets one. Whoever connects holds this
/// throughout.
static KNOWN: Lock<Vec<Arc<Known>>> = Lock::new(Vec::new());

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
/// A second connection to the same server shares the first one's devices and options. After the server was lost, its devices
/// stay lost for as long as a [`Connection`], a backend or a buffer of theirs is left: a new connection makes new ones then.
/// When nothing is left of them and the server offers the same, a new connection takes them up again, as ggml frees none.
///
/// A connection that can't be made leaves nothing behind: ggml hears of a server when it has answered all that ggml asks.
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
    let mut known = KNOWN.lock();
    let there = known.iter().find(|known| known.link.lost().is_none() && addresses.contains(&known.link.address()));
    if let Some(connection) = there.and_then(Connection::renew) {
        return Ok(connection);
    }
    Connection::open(endpoint, &addresses, options, &mut known)
}

impl Known {
    /// A relay for this server, over `peer`, and whether ggml does not know it: that of an earlier loss of the same server,
    /// if nobody needs it any more, or a new one.
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
        let fail = |e| failure(self.link.endpoint(), format!("the relay in this process could not be started: {e}"));
        let peer = peer.ok_or_else(|| fail(io::ErrorKind::NotConnected.into()))?;
        Ok((Relay::start(Arc::clone(&self.link), self.survey.clone(), peer).map_err(fail)?, true))
    }
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
    fn open(endpoint: &str, addresses: &[SocketAddr], options: &Options, known: &mut Vec<Arc<Known>>) -> Result<Self> {
        let fail = |reason: String| failure(endpoint, reason);
        let (mut peer, address) = peer::open(addresses, options).map_err(fail)?;
        let link = Arc::new(Link::new(endpoint, address, options.clone()));
        let survey = Survey::make(&mut peer, &link).map_err(fail)?;
        if own::is_short_of_handles(peer.stream()) {
            return Err(fail(
                "this process has hardly any file handles left; close some, or raise the limit".to_owned(),
            ));
        }
        // From here on a `Connection` drops its hold whatever happens.
        link.hold();
        let mut ours = Known { link, survey, devices: Vec::new(), relay: None };
        if !options.uses_relay() {
            // The server must be free for ggml.
            drop(peer);
            let introduced = if address.is_ipv4() {
                tell(address, endpoint).and_then(|server| introduce(server, &ours.link))
            } else {
                Err(fail(format!("{address} is IPv6, which needs the relay (`Options::relay`)")))
            };
            return introduced.map(|devices| Self::keep(Known { devices, ..ours }, known));
        }
        let (relay, is_new) = ours.relay(peer, known)?;
        ours.relay = Some(relay.clone());
        let server = tell(relay.address(), endpoint);
        let is_told = server.is_ok() || !is_new;
        match server.and_then(|server| introduce(server, &ours.link)) {
            Ok(devices) => Ok(Self::keep(Known { devices, ..ours }, known)),
            Err(error) => {
                if is_told {
                    ours.link.lose("its devices could not be listed when it was connected to".to_owned());
                    drop(Self::keep(ours, known));
                } else {
                    relay.stop();
                }
                Err(error)
            }
        }
    }

    /// A connection to a server that ggml knows from now on.
    fn keep(server: Known, known: &mut Vec<Arc<Known>>) -> Self {
        let server = Arc::new(server);
        known.push(Arc::clone(&server));
        Self { known: server }
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

/// Makes ggml connect to `target`, which is the relay or server of `endpoint`.
fn tell(target: SocketAddr, endpoint: &str) -> Result<RawServer> {
    let fail = |reason: String| failure(endpoint, reason);
    let target = CString::new(target.to_string()).map_err(|e| fail(e.to_string()))?;
    match RawServer::add(&target) {
        Ok(Some(server)) => Ok(server),
        Ok(None) => Err(fail("ggml found no devices".to_owned())),
        // For want of a file handle or a thread: what the server has to say is known.
        Err(e @ (Error::Ggml { .. } | Error::Exception { .. })) => Err(fail(format!("ggml could not connect: {e}"))),
        Err(e) => Err(e),
    }
}

/// Makes ggml list the devices of a server that it knows.
fn introduce(server: RawServer, link: &Arc<Link>) -> Result<Vec<Device>> {
    let devices = server.devices()?;
    lost::attach(&devices, &link.server);
    server.register()?;
    Ok(devices)
}

fn failure(endpoint: &str, reason: String) -> Error {
    Error::Rpc { endpoint: endpoint.into(), reason: reason.into() }
}
