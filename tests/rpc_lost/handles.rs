//! Calls while the process is out of file handles.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ggml::rpc::{self, Connection, Options};
use ggml::{Device, Error};
use testkit::server::ServerProcess;

use crate::again::alone;

const LIMIT: Duration = Duration::from_secs(5);

/// The process's limit of handles.
const HANDLES: libc::rlim_t = 128;

/// Takes all handles except `left`.
fn take_all_but(left: usize) -> Vec<File> {
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    taken.truncate(taken.len().saturating_sub(left));
    taken
}

fn limit_handles() {
    let limit = libc::rlimit { rlim_cur: HANDLES, rlim_max: HANDLES };
    // SAFETY: the limits are a live structure that the call only reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Options with a limit for each wait.
fn patient() -> Options {
    Options::new().with_connect_timeout(LIMIT).with_answer_timeout(LIMIT)
}

/// Few handles, and a device of a server.
fn connected(options: &Options) -> (ServerProcess, Connection, Device) {
    limit_handles();
    let server = ServerProcess::start();
    let connection = rpc::connect_with(&server.address.to_string(), options).unwrap();
    let device = connection.devices()[0];
    (server, connection, device)
}

fn in_time<T>(call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = call();
    assert!(start.elapsed() < 4 * LIMIT, "took {:?}", start.elapsed());
    result
}

#[test]
fn connect_returns_with_any_number_of_file_handles() {
    alone("handles::connect_returns_with_any_number_of_file_handles", || {
        limit_handles();
        let options = patient();
        let mut failed = 0;
        for left in 0..12 {
            let server = ServerProcess::start();
            let endpoint = server.address.to_string();
            let taken = take_all_but(left);
            match in_time(|| rpc::connect_with(&endpoint, &options)) {
                Ok(connection) => assert_eq!(connection.devices().len(), 2),
                Err(Error::Rpc { .. }) => failed += 1,
                Err(other) => panic!("{left}: {other:?}"),
            }
            drop(taken);
            let connection = in_time(|| rpc::connect_with(&endpoint, &options)).unwrap();
            assert!(connection.devices()[0].memory().unwrap().total > 0);
        }
        assert!((1..12).contains(&failed), "{failed} of 12 failed");
    });
}

/// ggml reconnects to the relay when a device is used.
#[test]
fn device_recovers_once_file_handles_are_free() {
    alone("handles::device_recovers_once_file_handles_are_free", || {
        let (_server, connection, device) = connected(&patient());
        let mut failed = 0;
        for left in 0..6 {
            let taken = take_all_but(left);
            for _ in 0..3 {
                if in_time(|| device.memory()).is_err() {
                    failed += 1;
                }
            }
            drop(taken);
            connection.check().unwrap();
            assert!(in_time(|| device.memory()).unwrap().total > 0);
            drop(in_time(|| device.init()).unwrap());
        }
        assert!((1..18).contains(&failed), "{failed} of 18 failed");
    });
}

/// The relay reconnects to the server when a device without holder is used.
#[test]
fn server_is_not_lost_for_lack_of_file_handles() {
    alone("handles::server_is_not_lost_for_lack_of_file_handles", || {
        let (_server, connection, device) = connected(&Options::new());
        drop(connection);
        // Lets the relay notice the end of the connection.
        thread::sleep(Duration::from_millis(200));
        // With none left, ggml can't connect to the relay. With one, it can, but the relay can't connect to the server.
        for left in [0, 1] {
            let taken = take_all_but(left);
            let error = in_time(|| device.memory()).unwrap_err();
            assert!(matches!(error, Error::Ggml { .. }), "{error:?}");
            let text = error.to_string();
            let told = text.contains("could not connect to 127.0.0.1:") && text.contains("file handles");
            assert!(told || left == 1, "{text}");
            drop(taken);
        }
        assert!(in_time(|| device.memory()).unwrap().total > 0);
    });
}

/// The handle that the relay needs is taken after ggml connected to it: without a check, ggml would wait forever.
#[test]
fn call_without_a_handle_for_the_relay_is_an_error() {
    alone("handles::call_without_a_handle_for_the_relay_is_an_error", || {
        let (_server, connection, device) = connected(&Options::new());
        let mut failed = 0;
        for _ in 0..5 {
            let taken = take_all_but(1);
            // The relay accepts this connection, and then has no handle for the next one.
            device.memory().unwrap();
            // Both ends of the connection are closed, and the relay retries soon.
            thread::sleep(Duration::from_millis(10));
            let more = take_all_but(1);
            if let Err(error) = in_time(|| device.memory()) {
                assert!(matches!(error, Error::Ggml { .. }), "{error:?}");
                failed += 1;
            }
            drop((taken, more));
            connection.check().unwrap();
            assert!(in_time(|| device.memory()).unwrap().total > 0);
        }
        assert!(failed > 0, "the relay had a handle each time");
    });
}

/// A program that takes each handle as soon as it is free.
#[test]
fn connect_returns_while_threads_take_every_handle() {
    alone("handles::connect_returns_while_threads_take_every_handle", || {
        limit_handles();
        let server = ServerProcess::start();
        let endpoint = server.address.to_string();
        let options = patient();
        for left in 0..12 {
            let done = AtomicBool::new(false);
            let taken = take_all_but(left);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut more = Vec::new();
                    while !done.load(Ordering::Relaxed) {
                        more.extend(File::open("/dev/null"));
                        thread::yield_now();
                    }
                });
                let connection = in_time(|| rpc::connect_with(&endpoint, &options));
                done.store(true, Ordering::Relaxed);
                if let Err(error) = connection {
                    assert!(matches!(error, Error::Rpc { .. }), "{error:?}");
                }
            });
            drop(taken);
            assert_eq!(in_time(|| rpc::connect_with(&endpoint, &options)).unwrap().devices().len(), 2);
        }
    });
}
