//! Connections by TLS, with certificates that are made here.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use ggml::rpc::{self, Options, Server, Stop, Tls};
use ggml::{DType, Device, Error, WeightsBuilder};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Whoever gives out certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate of this authority and its key, in PEM.
    fn issue(&self, host: &str) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }

    /// One of its own for `host`, which trusts those of `roots`.
    fn tls(&self, host: &str, roots: &Self) -> Tls {
        let [certificate, key] = self.issue(host);
        Tls::new(certificate, key, roots.0.pem()).unwrap()
    }
}

fn serve(tls: Tls) -> (Server, String) {
    let server = crate::start(Server::builder().tls(tls)).unwrap();
    let endpoint = server.address().to_string();
    (server, endpoint)
}

fn refused(endpoint: &str, options: &Options) -> String {
    match rpc::connect_with(endpoint, &options.clone().with_connect_timeout(Duration::from_secs(20))) {
        Err(error @ Error::Rpc { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Everything that a device gives back for an upload and a computation.
fn results(device: Device) -> Vec<u8> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [512, 2048]).unwrap();
    let mut weights = builder.place(device.buffer_type()).unwrap();
    let values: Vec<f32> = (0..512_u16).cycle().take(512 * 2048).map(|i| f32::from(i).sin()).collect();
    weights.set("w", &values).unwrap();
    let mut bytes = weights.read_bytes("w").unwrap();
    let ctx = ggml::Context::new();
    let x = ctx.input("x", DType::F32, [512, 3]).unwrap();
    let y = ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut backend = device.init().unwrap();
    let mut allocator = ggml::GraphAllocator::new(device.buffer_type());
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    memory.set(x, &values[..512 * 3]).unwrap();
    for _ in 0..3 {
        memory.compute().unwrap();
        bytes.extend(memory.get::<f32>(y).unwrap().into_iter().flat_map(f32::to_le_bytes));
    }
    bytes
}

#[test]
fn results_have_the_same_bits() {
    let authority = Authority::new();
    let (server, endpoint) = serve(authority.tls("127.0.0.1", &authority));
    let plain = crate::start(Server::builder()).unwrap();
    let options = Options::new().with_tls(authority.tls("client", &authority));
    let connection = rpc::connect_with(&endpoint, &options).unwrap();
    let other = rpc::connect(&plain.address().to_string()).unwrap();
    assert_eq!(results(connection.devices()[0]), results(other.devices()[0]));
    assert!(connection.traffic().unwrap().sent > 4 << 20);
    connection.check().unwrap();
    server.stop(Stop::Now);
}

/// Only one with the same certificates and the same host shares it.
#[test]
fn connections_are_shared_by_equal_options_only() {
    let authority = Authority::new();
    let (server, endpoint) = serve(authority.tls("127.0.0.1", &authority));
    let options = Options::new().with_tls(authority.tls("client", &authority));
    let first = rpc::connect_with(&endpoint, &options).unwrap();
    let second = rpc::connect_with(&endpoint, &options.clone()).unwrap();
    assert_eq!((first.devices(), server.clients().len()), (second.devices(), 1));
    let message = refused(&format!("localhost:{}", server.address().port()), &options);
    assert!(message.contains("name the host"), "{message}");
    refused(&endpoint, &Options::new());
    let stranger = Authority::new();
    refused(&endpoint, &Options::new().with_tls(stranger.tls("client", &authority)));
    first.check().unwrap();
}

#[test]
fn clients_without_the_right_certificate_are_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (server, endpoint) = serve(authority.tls("127.0.0.1", &authority));
    let message = refused(&endpoint, &Options::new().with_tls(stranger.tls("client", &authority)));
    assert!(message.contains("does not accept this side's certificate; use one of an authority that it"), "{message}");
    let message = refused(&endpoint, &Options::new());
    assert!(message.contains("one without TLS?"), "{message}");
    // A client that shows none: this crate's always has one.
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let state = rustls::ClientConnection::new(config.into(), name).unwrap();
    let mut stream = rustls::StreamOwned::new(state, TcpStream::connect(&endpoint).unwrap());
    let _sent = stream.write_all(&[0; 64]);
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(format!("{error:?}").contains("CertificateRequired"), "{error:?}");
    // The good one is served all the same.
    let options = Options::new().with_tls(authority.tls("client", &authority));
    rpc::connect_with(&endpoint, &options).unwrap().check().unwrap();
    drop(server);
}

#[test]
fn servers_without_the_right_certificate_are_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let options = Options::new().with_tls(authority.tls("client", &authority));
    let (_server, endpoint) = serve(stranger.tls("127.0.0.1", &authority));
    let message = refused(&endpoint, &options);
    assert!(
        message.contains("its certificate is not accepted here; it must come from one of the `roots`"),
        "{message}"
    );
    let (_server, endpoint) = serve(authority.tls("10.0.0.1", &authority));
    let message = refused(&endpoint, &options);
    assert!(message.contains("name the host"), "{message}");
    let plain = crate::start(Server::builder()).unwrap();
    let message = refused(&plain.address().to_string(), &options);
    assert!(message.contains("does it speak TLS"), "{message}");
    let message = refused(&plain.address().to_string(), &options.with_relay(false));
    assert!(message.contains("needs the relay"), "{message}");
}

/// A server that can't listen there says so, and not that the address is refused.
#[test]
fn tls_allows_public_addresses() {
    let authority = Authority::new();
    let public = || Server::builder().address((Ipv4Addr::new(192, 0, 2, 1), 0));
    let message = public().start().unwrap_err().to_string();
    assert!(message.contains("use `tls`"), "{message}");
    let message = public().tls(authority.tls("192.0.2.1", &authority)).start().unwrap_err().to_string();
    assert!(message.contains("can't listen there"), "{message}");
}

#[test]
fn wrong_files_are_refused() {
    let authority = Authority::new();
    let ([certificate, key], [_, other]) = (authority.issue("a"), authority.issue("a"));
    let root = authority.0.pem();
    for (files, part) in [
        (["", &key, &root], "certificates"),
        ([&certificate, "no key", &root], "key"),
        ([&certificate, &key, &key], "roots"),
        ([&certificate, &other, &root], "certificates"),
    ] {
        match Tls::new(files[0], files[1], files[2]) {
            Err(Error::Param { name, .. }) => assert_eq!(name, part),
            other => panic!("{other:?}"),
        }
    }
    let tls = Tls::new(&certificate, &key, &root).unwrap();
    assert!(!format!("{tls:?}").contains(&key[30..60]));
}
