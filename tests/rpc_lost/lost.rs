//! The C functions' results after the loss of a server.

use std::time::{Duration, Instant};

use ggml::rpc::{self, Connection, Options};
use ggml::{Device, Error};
use testkit::rpc::raw::{self, Backend, Memory, Pool, numbers};
use testkit::server::ServerProcess;

const LIMIT: Duration = Duration::from_millis(500);

fn connect(server: &ServerProcess) -> Connection {
    rpc::connect_with(&server.address.to_string(), &Options::new().with_answer_timeout(LIMIT)).unwrap()
}

fn assert_lost(connection: &Connection) {
    let error = connection.check().unwrap_err();
    assert!(matches!(&error, Error::RpcLost { endpoint, .. } if **endpoint == *connection.endpoint()), "{error:?}");
    let error = connection.devices()[0].memory().unwrap_err();
    assert!(matches!(error, Error::RpcLost { .. }), "{error:?}");
}

#[test]
fn every_call_returns_after_the_server_was_killed() {
    let mut server = ServerProcess::start();
    let connection = connect(&server);
    let device = connection.devices()[0];
    let pool = Pool::default();
    let product = pool.product();
    let memory = pool.allocate(device).unwrap();
    let backend = Backend::new(device);
    raw::set(product.a, &numbers(1));
    connection.check().unwrap();

    server.kill();
    raw::set(product.b, &numbers(1));
    backend.compute(&product);
    assert_eq!(raw::get(product.c, 1.0_f32), vec![0.0; raw::SIDE * raw::SIDE]);
    assert_lost(&connection);

    let more = Pool::default();
    more.bytes(1000);
    assert!(more.allocate(device).is_none(), "a lost server gave memory");
    drop(Backend::new(device));
    drop((memory, backend));
    assert_lost(&connection);
    let error = rpc::connect(connection.endpoint()).unwrap_err();
    assert!(matches!(error, Error::Rpc { .. }), "{error:?}");
    // Servers of other tests may be there.
    let best = Device::best().unwrap();
    assert!(!connection.devices().contains(&best), "{best} is lost");
}

/// ggml asserts that a buffer has an address, and requests it as late as possible.
#[test]
fn lost_buffer_still_has_an_address() {
    let mut server = ServerProcess::start();
    let connection = connect(&server);
    let memory = Memory::new(connection.devices()[1], 1000);
    server.kill();
    assert_ne!(memory.address(), 0);
    assert_lost(&connection);
}

#[test]
fn server_killed_during_a_computation_is_lost() {
    let mut server = ServerProcess::start();
    let connection = connect(&server);
    let pool = Pool::default();
    let product = pool.product();
    let _memory = pool.allocate(connection.devices()[0]).unwrap();
    let backend = Backend::new(connection.devices()[0]);
    for _ in 0..1000 {
        backend.compute(&product);
    }
    server.kill();
    assert_eq!(raw::get(product.c, 1.0_f32).len(), raw::SIDE * raw::SIDE);
    assert_lost(&connection);
}

#[cfg(unix)]
#[test]
fn hanging_server_is_lost_in_time() {
    let server = ServerProcess::start();
    let connection = connect(&server);
    let pool = Pool::default();
    let tensor = pool.bytes(1000);
    let _memory = pool.allocate(connection.devices()[0]).unwrap();
    raw::set(tensor, &[1_u8; 1000]);
    server.stop();
    let start = Instant::now();
    assert_eq!(raw::get(tensor, 2_u8), [0; 1000]);
    assert!((LIMIT..100 * LIMIT).contains(&start.elapsed()), "took {:?}", start.elapsed());
    assert_lost(&connection);
}

#[test]
fn connect_after_a_restart_makes_a_new_connection() {
    let mut server = ServerProcess::start();
    let address = server.address;
    let old = connect(&server);
    server.kill();
    assert!(old.devices()[0].memory().is_err());

    let _server = ServerProcess::start_at(address);
    let new = rpc::connect(&address.to_string()).unwrap();
    assert_ne!(new.devices(), old.devices());
    assert!(new.devices()[0].memory().unwrap().total > 0);
    new.check().unwrap();
    assert_lost(&old);
}
