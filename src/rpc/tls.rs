//! Connections by TLS 1.3, on which both sides show certificates.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection, Stream};

use super::timed::Timed;
use crate::debug::debug;
use crate::error::{Error, Result};
use crate::lock::Lock;

const CALL: &str = "rpc::Tls::new";

/// Certificates with which a client and a server prove to each other who they are.
///
/// The same value serves as a client's ([`Options::with_tls`](super::Options::with_tls)) and as a server's
/// ([`ServerBuilder::tls`](super::ServerBuilder::tls)). All is sent by TLS 1.3, by the crate `rustls`. A clone shares
/// the certificates, and is equal to the original; another value is not, even of the same files.
///
/// ```no_run
/// # use std::fs::read;
/// use ggml::rpc::{Options, Server, Tls, connect_with};
///
/// // On the machine of the server:
/// let tls = Tls::new(read("server.pem")?, read("server.key")?, read("authority.pem")?)?;
/// let server = Server::builder().address(([0, 0, 0, 0], 50052)).tls(tls).start()?;
///
/// // On that of a client:
/// let tls = Tls::new(read("client.pem")?, read("client.key")?, read("authority.pem")?)?;
/// let connection = connect_with("gpu-box.example.org:50052", &Options::new().with_tls(tls))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tls(Arc<Configs>);

struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Returns what both sides need, each as the text of a PEM file:
    ///
    /// - `certificates`, this side's certificate, followed by those that lead to the authority's, if there are any;
    /// - `key`, the private key of the first of them;
    /// - `roots`, the certificates of the authorities that the other side's certificate must come from. Whoever has
    ///   one of such an authority is let in, so a server should have an authority of its own, and not a public one.
    ///
    /// A server's certificate must name the host by which clients connect, be it a name or an IP address.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for text that isn't PEM, without what is asked for, and for a key of another certificate.
    pub fn new(certificates: impl AsRef<[u8]>, key: impl AsRef<[u8]>, roots: impl AsRef<[u8]>) -> Result<Self> {
        let chain = read_certificates("certificates", certificates.as_ref())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_ref()).map_err(|e| wrong("key", e, "a private key in PEM"))?;
        let mut trusted = RootCertStore::empty();
        for root in read_certificates("roots", roots.as_ref())? {
            trusted.add(root).map_err(|e| wrong("roots", e, "certificates of authorities"))?;
        }
        let trusted = Arc::new(trusted);
        let provider = Arc::new(ring::default_provider());
        let fail = |e: rustls::Error| wrong("certificates", e, "a certificate and its private key");

        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&trusted), Arc::clone(&provider)).build();
        let verifier = verifier.map_err(|e| wrong("roots", e, "certificates of authorities"))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13]);
        let server = server.map_err(fail)?.with_client_cert_verifier(verifier);
        let mut server = server.with_single_cert(chain.clone(), key.clone_key()).map_err(fail)?;
        // A server that sends only what it was asked for: `Peer` takes anything else for a fault.
        server.send_tls13_tickets = 0;

        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(fail)?;
        let client = client.with_root_certificates(trusted).with_client_auth_cert(chain, key).map_err(fail)?;
        Ok(Self(Arc::new(Configs { client: Arc::new(client), server: Arc::new(server) })))
    }

    /// The client's side of a connection to `endpoint`, a `host:port`.
    pub(super) fn connect(&self, endpoint: &str) -> io::Result<Connection> {
        let name = ServerName::try_from(host(endpoint).to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(Arc::clone(&self.0.client), name).map(Connection::from).map_err(io::Error::other)
    }

    pub(super) fn accept(&self) -> io::Result<Connection> {
        ServerConnection::new(Arc::clone(&self.0.server)).map(Connection::from).map_err(io::Error::other)
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

debug!(Tls); // nothing of the key

/// The host of a `host:port`, without the brackets of an IPv6 address.
pub(super) fn host(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn wrong(what: &'static str, got: impl fmt::Display, expected: &str) -> Error {
    Error::param(CALL, what, got.to_string(), format!("expected {expected}"))
}

fn read_certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let read: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|e| wrong(what, e, "certificates in PEM"))?;
    if read.is_empty() {
        return Err(wrong(what, "none", "certificates in PEM (`-----BEGIN CERTIFICATE-----`)"));
    }
    Ok(read)
}

/// One direction of an encrypted connection. Each of them may have to read and to write for the handshake.
#[derive(Debug)]
pub(super) struct Encrypted {
    state: Arc<Lock<Connection>>,
    pub(super) socket: Timed,
}

impl Encrypted {
    pub(super) fn pair(stream: TcpStream, state: Connection) -> [Self; 2] {
        let state = Arc::new(Lock::new(state));
        Timed::pair(stream).map(|socket| Self { state: Arc::clone(&state), socket })
    }

    fn pass<R>(&mut self, step: impl FnOnce(&mut dyn Duplex) -> R) -> R {
        match &mut *self.state.lock() {
            Connection::Client(state) => step(&mut Stream::new(state, &mut self.socket)),
            Connection::Server(state) => step(&mut Stream::new(state, &mut self.socket)),
        }
    }

    /// The number of decrypted bytes that were not read yet.
    pub(super) fn decrypted(&self) -> io::Result<usize> {
        let state = self.state.lock().process_new_packets().map_err(io::Error::other)?;
        Ok(state.plaintext_bytes_to_read())
    }
}

/// What is read and written.
trait Duplex: Read + Write {}

impl<T: Read + Write> Duplex for T {}

impl Read for Encrypted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pass(|stream| stream.read(buffer))
    }
}

impl Write for Encrypted {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.pass(|stream| stream.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass(|stream| stream.flush())
    }
}

/// What an error of TLS means, and what to do; `None` for other errors.
pub(super) fn meaning(error: &io::Error) -> Option<String> {
    use rustls::AlertDescription as Alert;
    use rustls::Error as E;

    let error = error.get_ref()?.downcast_ref::<E>()?;
    let advice = match error {
        E::InvalidMessage(_) => "it does not speak TLS; use TLS on both sides or on neither",
        E::NoCertificatesPresented => "it shows no certificate; give it one of an authority that is trusted here",
        E::InvalidCertificate(_) => {
            "its certificate is not accepted here; it must come from one of the `roots`, be valid now, and name the host"
        }
        E::AlertReceived(Alert::CertificateRequired) => "it asks for a certificate; give this side one",
        E::AlertReceived(_) => "it does not accept this side's certificate; use one of an authority that it trusts",
        _ => "TLS failed",
    };
    Some(format!("{advice} ({error})"))
}
