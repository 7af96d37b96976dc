//! A server's address and options, and the number of its holders.

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
    /// The state that the server's devices share.
    pub(super) server: Arc<Remote>,
    address: SocketAddr,
    options: Options,
    /// The number of [`Connection`](super::Connection)s, which reserve the server even while nothing uses it.
    holders: AtomicUsize,
    /// The traffic between relay and server.
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

    /// Adds a holder; returns how many there were before.
    pub(super) fn hold(&self) -> usize {
        self.holders.fetch_add(1, Ordering::SeqCst)
    }

    /// Removes a holder.
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
