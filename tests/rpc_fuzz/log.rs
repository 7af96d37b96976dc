//! Why a server closed a connection: only its log has that.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a thread needs to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last reasons, by the addresses of server and client.
static REASONS: LazyLock<Mutex<HashMap<(SocketAddr, SocketAddr), String>>> = LazyLock::new(Mutex::default);

struct Reasons;

impl log::Log for Reasons {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        let parts = line.strip_prefix("RPC server on ").and_then(|rest| rest.split_once(": client "));
        let Some((server, (client, why))) = parts.and_then(|(server, rest)| Some((server, rest.split_once(": ")?)))
        else {
            return;
        };
        if let (Ok(server), Ok(client)) = (server.parse(), client.parse()) {
            REASONS.lock().unwrap().insert((server, client), why.to_owned());
        }
    }

    fn flush(&self) {}
}

/// Forgets what was said of an earlier client of this address.
pub(crate) fn begin(server: SocketAddr, client: SocketAddr) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Reasons).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
    REASONS.lock().unwrap().remove(&(server, client));
}

/// Why the server of this process closed the connection, when it has said so.
pub(crate) fn reason(server: SocketAddr, client: SocketAddr) -> String {
    let start = Instant::now();
    loop {
        if let Some(why) = REASONS.lock().unwrap().remove(&(server, client)) {
            return why;
        }
        assert!(start.elapsed() < PATIENCE, "the server does not say why it closed the connection");
        thread::sleep(Duration::from_millis(1));
    }
}
