//! Clients of the relay that come, go and misbehave.

use super::*;

#[test]
fn relay_keeps_the_connection_while_it_is_held() {
    let (connections, count) = channel();
    let (link, relay, address) = start(move |mut stream| {
        connections.send(()).unwrap();
        while request(&mut stream).is_some() {
            reply(&mut stream, &[7; 16]);
        }
    });
    for _ in 0..3 {
        assert_eq!(Client::new(address).memory(), [7; 16]);
        thread::sleep(SHORT);
    }
    assert_eq!(count.try_iter().count(), 1);

    link.release();
    relay.disconnect_if_free();
    for _ in 0..2 {
        assert_eq!(Client::new(address).memory(), [7; 16]);
        thread::sleep(SHORT);
    }
    assert_eq!(count.try_iter().count(), 2, "without a holder each client has a connection of its own");
    link.check().unwrap();
}

/// A child process may keep ggml's socket open.
#[test]
fn relay_serves_a_client_beside_an_open_one() {
    let (link, relay, _requests) = recorder();
    let mut first = Client::new(relay);
    assert_eq!(first.memory(), [7; 16]);
    assert_eq!(Client::new(relay).memory(), [7; 16]);
    assert_eq!(first.memory(), [7; 16]);
    link.check().unwrap();
}

#[test]
fn relay_ignores_clients_that_are_not_ggml() {
    let (link, relay, _requests) = recorder();
    let mut stray = TcpStream::connect(relay).unwrap();
    stray.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stray.read(&mut [0]).unwrap_or(0), 0, "it is hung up on");
    let mut blunt = TcpStream::connect(relay).unwrap();
    blunt.write_all(&wire::request_head(Command::DeviceCount, 0)).unwrap();
    assert_eq!(blunt.read(&mut [0]).unwrap_or(0), 0, "a session starts with a handshake");
    assert_eq!(Client::new(relay).memory(), [7; 16]);
    link.check().unwrap();
}
