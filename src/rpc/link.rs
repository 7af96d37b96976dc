//! How to reach a server, and who wants it kept.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::options::Options;
use super::traffic::Counter;
use crate::device::lost::Remote;

/// A server, shared by its relay, its devices and the user's [`Connection`](super::Connection)s.
#[derive(Debug)]
pub(super) struct Link {
    /// What its devices know of it.
    pub(super) server: Arc<Remote>,
    address: SocketAddr,
    options: Options,
    /// The [`Connection`](super::Connection)s that want the server kept, even while nothing uses it.
    holders: AtomicUsize,
    /// What the relay exchanged with the server.
    pub(super) traffic: Counter,
}

impl Link {
    pub(super) fn new(endpoint: &str, address: SocketAddr, options: Options) -> Self {
        Self {
            server: Arc::new(Remote::new(endpoint)),
            address,
            options,
            holders: AtomicUsize::new(0),
            traffic: Counter::default(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Counts one more who wants the server kept; returns how many there were.
    pub(super) fn hold(&self) -> usize {
        self.holders.fetch_add(1, Ordering::SeqCst)
    }

    /// Counts one less.
    pub(super) fn release(&self) {
        self.holders.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_held(&self) -> bool {
        self.holders.load(Ordering::SeqCst) > 0
    }
}

impl Deref for Link {
    type Target = Remote;

    fn deref(&self) -> &Remote {
        &self.server
    }
}
