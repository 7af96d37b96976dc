//! Computations and transfers while the server is there.

use ggml::Device;
use ggml::rpc::{self, Connection, Options, Server};
use testkit::rpc::raw::{self, Backend, Pool, Sched, numbers};

/// A connection to a server in this process, which runs until the process ends.
fn local(options: &Options) -> Connection {
    let server = Box::leak(Box::new(crate::start(Server::builder()).unwrap()));
    rpc::connect_with(&server.address().to_string(), options).unwrap()
}

/// Multiplies on the connection's first device.
fn multiply(connection: &Connection) -> Vec<f32> {
    let pool = Pool::default();
    let product = pool.product();
    let _memory = pool.allocate(connection.devices()[0]).unwrap();
    raw::set(product.a, &numbers(3));
    raw::set(product.b, &numbers(5));
    Backend::new(connection.devices()[0]).compute(&product);
    raw::get(product.c, f32::NAN)
}

#[test]
fn remote_data_round_trip() {
    let connection = local(&Options::new());
    // The second size is large enough for ggml to send a hash first.
    for n in [1000, 11 << 20] {
        let pool = Pool::default();
        let tensor = pool.bytes(n);
        let memory = pool.allocate(connection.devices()[0]).unwrap();
        memory.of_weights();
        let data: Vec<u8> = (0..=250).cycle().take(n).collect();
        raw::set(tensor, &data);
        assert!(raw::get(tensor, 0_u8) == data, "{n} bytes changed");
    }
    connection.check().unwrap();
}

#[test]
fn remote_graph_computes() {
    let connection = local(&Options::new());
    assert_eq!(multiply(&connection), raw::expected(&numbers(3), &numbers(5)));
    connection.check().unwrap();
}

#[test]
fn remote_graph_computes_without_the_relay() {
    let connection = local(&Options::new().with_relay(false));
    assert_eq!(multiply(&connection), raw::expected(&numbers(3), &numbers(5)));
}

/// A server discards its graphs when a buffer is freed, but ggml's client asks it to repeat one all the same.
#[test]
fn remote_graph_recomputes_after_other_memory_was_freed() {
    let connection = local(&Options::new());
    let device = connection.devices()[0];
    let others = Pool::default();
    others.bytes(100);
    let other_memory = others.allocate(device).unwrap();
    let pool = Pool::default();
    let product = pool.product();
    let _memory = pool.allocate(device).unwrap();
    raw::set(product.a, &numbers(3));
    raw::set(product.b, &numbers(5));

    // Only a scheduler numbers its graphs, and the client recognises a repetition by the number.
    let sched = Sched::new(device);
    assert!(sched.allocate(&product));
    sched.compute(&product);
    assert_eq!(raw::get(product.c, f32::NAN), raw::expected(&numbers(3), &numbers(5)));
    drop(other_memory);
    raw::set(product.b, &numbers(6));
    sched.compute(&product);
    assert_eq!(raw::get(product.c, f32::NAN), raw::expected(&numbers(3), &numbers(6)));
    connection.check().unwrap();
}

#[test]
fn connect_reuses_the_connection_of_a_server() {
    let server = crate::start(Server::builder()).unwrap();
    let port = server.address().port();
    let first = rpc::connect(&format!("127.0.0.1:{port}")).unwrap();
    let second = rpc::connect(&format!("127.0.0.1:{port}")).unwrap();
    assert_eq!(first.devices(), second.devices());
    let all = Device::all().unwrap();
    assert_eq!(all.iter().filter(|device| first.devices().contains(device)).count(), 1);
    drop((first, second));
    let third = rpc::connect(&format!("127.0.0.1:{port}")).unwrap();
    assert_eq!(multiply(&third), raw::expected(&numbers(3), &numbers(5)));
}

#[test]
fn servers_have_separate_devices() {
    let (one, two) = (local(&Options::new()), local(&Options::new()));
    assert_ne!(one.devices()[0].name(), two.devices()[0].name());
    assert_eq!(multiply(&one), multiply(&two));
}

/// The system gives a port again once nobody listens there.
#[test]
fn another_server_at_the_same_address_has_devices_of_its_own() {
    let server = crate::start(Server::builder()).unwrap();
    let address = server.address();
    let former = rpc::connect(&address.to_string()).unwrap();
    let [device] = *former.devices() else { panic!("{former:?}") };
    drop((former, server));
    let devices = [Device::cpu().unwrap(); 2];
    let _server = crate::start(Server::builder().address(address).devices(devices)).unwrap();
    let connection = rpc::connect(&address.to_string()).unwrap();
    assert_eq!(connection.devices().len(), 2);
    assert!(!connection.devices().contains(&device));
    assert_eq!(multiply(&connection), raw::expected(&numbers(3), &numbers(5)));
    let lost = device.init().unwrap_err().to_string();
    assert!(lost.contains("replaced by a server of other devices"), "{lost}");
}

/// ggml's client sends weights of more than 10 MiB only if the server has none of their hash.
#[test]
fn weights_in_the_cache_are_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..=250).cycle().take(11 << 20).collect();
    let sent = [0, 1].map(|_| {
        let server = crate::start(Server::builder().cache(folder.path())).unwrap();
        let connection = rpc::connect(&server.address().to_string()).unwrap();
        let pool = Pool::default();
        let tensor = pool.bytes(data.len());
        let memory = pool.allocate(connection.devices()[0]).unwrap();
        memory.of_weights();
        raw::set(tensor, &data);
        assert!(raw::get(tensor, 0_u8) == data, "the weights changed");
        drop(memory);
        connection.traffic().unwrap().sent
    });
    assert!(sent[0] > 11 << 20 && sent[1] < 1 << 16, "{sent:?}");
}

#[test]
fn a_server_serves_ipv6() {
    let server = crate::start(Server::builder().address((std::net::Ipv6Addr::LOCALHOST, 0))).unwrap();
    assert!(server.address().is_ipv6());
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    assert_eq!(multiply(&connection), raw::expected(&numbers(3), &numbers(5)));
    assert!(server.clients().iter().all(|client| client.address.ip() == server.address().ip()));
    assert_eq!(server.clients().len(), 1);
}
