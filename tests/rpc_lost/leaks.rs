//! Resources that connections leave behind: threads, file handles and registry entries, counted in a separate process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ggml::rpc::{self, Options};
use ggml::{Device, Error, sys};

use crate::again::alone;
use crate::fake::{self, Answer};

const LIMIT: Duration = Duration::from_secs(20);

/// The counts that must not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    threads: usize,
    handles: usize,
    devices: usize,
    registries: usize,
}

impl Census {
    fn take() -> Self {
        let entries = |folder| std::fs::read_dir(folder).unwrap().count();
        Self {
            threads: entries("/proc/self/task"),
            handles: entries("/proc/self/fd"),
            devices: Device::all().unwrap().len(),
            // SAFETY: only this thread uses ggml, so the list does not change during the call.
            registries: unsafe { sys::ggml_backend_reg_count() },
        }
    }

    /// Checks that nothing grew beyond `before`. Retries, because threads end shortly after what they serve.
    fn assert_no_more_than(before: Self) {
        let start = Instant::now();
        loop {
            let now = Self::take();
            let grown = now.threads > before.threads || now.handles > before.handles;
            assert_eq!((now.devices, now.registries), (before.devices, before.registries));
            if !grown {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{before:?} became {now:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The ways in which a server can make a connection fail, from the handshake to the last query.
fn spoilt(way: usize, command: u8) -> Answer {
    let number = |n: u64| Answer::Bytes(n.to_le_bytes().to_vec());
    match (way, command) {
        (0, fake::HELLO) | (1, fake::DEVICE_COUNT) | (2, fake::ALIGNMENT) | (3, fake::MAX_SIZE) => Answer::Close,
        (4, fake::HELLO) => Answer::Bytes([&[rpc::VERSION[0] + 1, 0, 0, 0][..], &[0; 24]].concat()),
        (5, fake::DEVICE_COUNT) => Answer::Bytes(0_u32.to_le_bytes().to_vec()),
        (6, fake::DEVICE_COUNT) => Answer::Bytes(u32::MAX.to_le_bytes().to_vec()),
        (7, fake::ALIGNMENT) => number(3),
        (8, fake::MAX_SIZE) => number(0),
        (9, fake::MAX_SIZE) => Answer::Bytes(vec![1; 7]),
        _ => Answer::Good,
    }
}

const WAYS: usize = 10;

#[test]
fn failed_connect_leaks_no_thread_handle_or_entry() {
    alone("leaks::failed_connect_leaks_no_thread_handle_or_entry", || {
        let options = Options::new().with_connect_timeout(LIMIT).with_answer_timeout(LIMIT);
        let servers: Vec<_> = (0..WAYS).map(|way| fake::start(move |command| spoilt(way, command))).collect();
        let fail = || {
            for (way, server) in servers.iter().enumerate() {
                let error = rpc::connect_with(&server.to_string(), &options).expect_err("it is spoilt");
                assert!(matches!(error, Error::Rpc { .. }), "{way}: {error:?}");
            }
        };
        fail();
        let before = Census::take();
        (0..30).for_each(|_| fail());
        Census::assert_no_more_than(before);
    });
}

/// The devices of a lost server are reused once nothing refers to them.
#[test]
fn reconnecting_to_lost_servers_leaks_nothing() {
    alone("leaks::reconnecting_to_lost_servers_leaks_nothing", || {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let server = fake::start(move |command| match command {
            // The second query of each client.
            fake::MEMORY if count.fetch_add(1, Ordering::SeqCst) % 2 == 1 => Answer::Close,
            _ => Answer::Good,
        });
        let lose = || {
            let connection = rpc::connect(&server.to_string()).unwrap();
            let device = connection.devices()[0];
            assert_eq!(device.memory().unwrap().total, 1 << 30);
            let error = device.memory().unwrap_err();
            assert!(matches!(error, Error::RpcLost { .. }), "{error:?}");
            assert!(connection.check().is_err());
            drop(connection);
            // Lets the relay notice the end of ggml's connection.
            thread::sleep(Duration::from_millis(200));
        };
        lose();
        lose();
        let before = Census::take();
        (0..30).for_each(|_| lose());
        Census::assert_no_more_than(before);
        assert_eq!(asked.load(Ordering::SeqCst), 64);
    });
}
