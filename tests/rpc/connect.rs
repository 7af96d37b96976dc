//! Failing connections, and servers that can't start.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ggml::Error;
use ggml::rpc::{self, Limits, Options, Server};

const LIMIT: Duration = Duration::from_millis(300);

/// The reason why connecting to `endpoint` fails.
fn refusal(endpoint: &str) -> String {
    let start = Instant::now();
    let error = rpc::connect_with(endpoint, &Options::new().with_connect_timeout(LIMIT)).unwrap_err();
    assert!(start.elapsed() < 100 * LIMIT, "took {:?}", start.elapsed());
    match error {
        Error::Rpc { endpoint: named, reason, .. } => {
            assert_eq!(&*named, endpoint);
            reason.into_owned()
        }
        other => panic!("{other:?}"),
    }
}

/// A listener that calls `act` with each connection.
fn listener(act: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().map(Result::unwrap).for_each(act));
    endpoint
}

#[test]
fn connect_requires_a_port() {
    let reason = refusal("127.0.0.1");
    assert!(reason.contains("host:port"), "{reason}");
}

#[test]
fn connect_refuses_a_port_without_listener() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reason = refusal(&port.to_string());
    assert!(reason.contains("is the server running?"), "{reason}");
}

#[test]
fn connect_refuses_garbage() {
    let reason = refusal(&listener(|mut stream| stream.write_all(&[b'x'; 64]).unwrap()));
    assert!(reason.contains("not that of a ggml RPC server"), "{reason}");
}

#[test]
fn connect_refuses_a_silent_peer() {
    let reason = refusal(&listener(|stream| {
        thread::sleep(200 * LIMIT);
        drop(stream);
    }));
    assert!(reason.contains("no answer to the handshake within 300ms"), "{reason}");
}

/// A server's answer to the handshake, in this version of the protocol.
fn hello([major, minor, patch]: [u8; 3]) -> Vec<u8> {
    [&28_u64.to_le_bytes()[..], &[major, minor, patch, 0], &[0; 24]].concat()
}

#[test]
fn a_peer_speaks_another_version() {
    let [major, minor, patch] = rpc::VERSION;
    let reason = refusal(&listener(move |mut stream| {
        stream.read_exact(&mut [0; 9 + 24]).unwrap();
        stream.write_all(&hello([major + 1, minor, patch])).unwrap();
    }));
    assert!(reason.contains(&format!("it speaks RPC protocol {}.{minor}.{patch}", major + 1)), "{reason}");
}

#[test]
fn a_peer_hangs_up_during_the_handshake() {
    let reason = refusal(&listener(|mut stream| stream.read_exact(&mut [0; 9 + 24]).unwrap()));
    assert!(reason.contains("closed the connection during the handshake"), "{reason}");
}

#[test]
fn a_peer_answers_in_single_bytes() {
    let reason = refusal(&listener(|mut stream| {
        for byte in hello(rpc::VERSION) {
            thread::sleep(LIMIT / 5);
            if stream.write_all(&[byte]).is_err() {
                break;
            }
        }
    }));
    assert!(reason.contains("no answer to the handshake within 300ms"), "{reason}");
}

#[test]
fn connect_refuses_a_peer_that_hangs_after_the_handshake() {
    let endpoint = listener(|mut stream| {
        stream.read_exact(&mut [0; 9 + 24]).unwrap();
        stream.write_all(&hello(rpc::VERSION)).unwrap();
        thread::sleep(200 * LIMIT);
    });
    let start = Instant::now();
    let options = Options::new().with_connect_timeout(LIMIT).with_answer_timeout(LIMIT);
    let error = rpc::connect_with(&endpoint, &options).unwrap_err();
    assert!(matches!(&error, Error::Rpc { reason, .. } if reason.contains("DEVICE_COUNT")), "{error:?}");
    assert!(start.elapsed() < 100 * LIMIT, "took {:?}", start.elapsed());
}

#[test]
fn server_has_several_clients_up_to_its_limit() {
    let server = crate::start(Server::builder().limits(Limits::new().with_connections(2))).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    assert!(is_served(&server), "there is room for another");
    while server.clients().len() > 1 {
        thread::sleep(LIMIT / 100);
    }
    let held = TcpStream::connect(server.address()).unwrap();
    while server.clients().len() < 2 {
        thread::sleep(LIMIT / 100);
    }
    assert!(!is_served(&server), "both places are taken");
    drop(held);
    while server.clients().len() > 1 {
        thread::sleep(LIMIT / 100);
    }
    assert!(is_served(&server), "one is free again");
    connection.check().unwrap();
}

/// Whether `server` answers another client's handshake.
fn is_served(server: &Server) -> bool {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(3 * LIMIT)).unwrap();
    // It may have hung up already.
    let hello = [&[14, 24, 0, 0, 0, 0, 0, 0, 0][..], &[0; 24]].concat();
    stream.write_all(&hello).and_then(|()| stream.read_exact(&mut [0; 8 + 28])).is_ok()
}

#[test]
fn server_refuses_numbers_of_threads_that_ggml_does_not_support() {
    for threads in [0, 513] {
        let error = crate::start(Server::builder().threads(threads)).unwrap_err();
        assert!(matches!(error, Error::Param { name: "threads", .. }), "{error:?}");
    }
}

#[test]
fn server_refuses_a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let std::net::SocketAddr::V4(address) = taken.local_addr().unwrap() else { panic!("IPv6") };
    let error = crate::start(Server::builder().address(address)).unwrap_err();
    assert!(matches!(error, Error::Rpc { .. }), "{error:?}");
}

#[test]
fn server_refuses_remote_devices() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let error = crate::start(Server::builder().devices(connection.devices().iter().copied())).unwrap_err();
    assert!(matches!(error, Error::Param { name: "devices", .. }), "{error:?}");
}

/// ggml's server would try to allocate that much.
#[test]
fn server_hangs_up_on_an_impossible_length() {
    let server = crate::start(Server::builder()).unwrap();
    let mut client = TcpStream::connect(server.address()).unwrap();
    let request = |command: u8, len: u64, payload: &[u8]| [&[command][..], &len.to_le_bytes(), payload].concat();
    client.write_all(&request(14, 24, &[0; 24])).unwrap();
    client.write_all(&request(6, u64::MAX, &[0; 305])).unwrap();
    let mut greeting = Vec::new();
    client.read_to_end(&mut greeting).unwrap();
    assert_eq!(greeting.len(), 8 + 28, "it hangs up after the handshake");
    rpc::connect(&server.address().to_string()).unwrap();
}
