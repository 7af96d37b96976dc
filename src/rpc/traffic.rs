//! Counting traffic.

use std::sync::atomic::{AtomicU64, Ordering};

/// The traffic with a server since the first connection, including the protocol's own bytes but not those of TCP.
///
/// The whole answer to a request that was sent is counted, whether it arrived or not.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::rpc::{self, Server};
/// # let server = Server::builder().start()?;
/// let connection = rpc::connect(&server.address().to_string())?;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("w", DType::F32, [1 << 18])?;
/// let mut weights = builder.place(connection.devices()[0])?;
/// weights.set("w", &vec![1.0_f32; 1 << 18])?;
/// weights.element::<f32>("w", [0; 4])?; // waits for the server
/// let traffic = connection.traffic().expect("it goes through the relay");
/// assert!(traffic.sent > 1 << 20 && traffic.requests > 2);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The number of requests sent.
    pub requests: u64,
    /// The number of bytes sent.
    pub sent: u64,
    /// The number of bytes received.
    pub received: u64,
}

/// The counters of a server, shared by its connections.
#[derive(Debug, Default)]
pub(super) struct Counter {
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counter {
    /// Counts a request of `sent` bytes and its answer.
    pub(super) fn add(&self, sent: u64, received: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    /// Counts bytes of an answer.
    pub(super) fn add_sent(&self, sent: u64) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }
}
