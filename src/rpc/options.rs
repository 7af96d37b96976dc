//! How a connection is made and watched.

use std::time::Duration;

/// How [`connect`](super::connect) reaches a server and how long it waits for it.
///
/// ```
/// use std::time::Duration;
///
/// let options = ggml::rpc::Options::new().connect_timeout(Duration::from_secs(2)).answer_timeout(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Options {
    connect_timeout: Duration,
    answer_timeout: Duration,
    relay: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(5), answer_timeout: Duration::from_secs(600), relay: true }
    }
}

impl Options {
    /// Five seconds to connect, ten minutes to answer, through the relay.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the connection may take to be made, for each address the name stands for, and how long the handshake may
    /// take after that.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = at_least_a_millisecond(timeout);
        self
    }

    /// How long the server may be silent while an answer is due, or refuse to take data, before it counts as lost.
    ///
    /// A server computes one request at a time and answers nothing meanwhile, so this must be longer than the longest
    /// graph takes. A machine that is switched off or cut from the network is noticed earlier, by TCP keep-alive, after
    /// about thirty seconds.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = at_least_a_millisecond(timeout);
        self
    }

    /// Whether ggml talks to the server through a relay in this process; it does unless told otherwise.
    ///
    /// ggml aborts the process when a server goes away or answers badly. The relay keeps that from happening, for a copy
    /// of the data through the loopback. Without it every later loss of the server ends the process (an abort, with
    /// nothing undefined about it), the time-outs only apply to the handshake, and the address must be IPv4. Child
    /// processes then inherit ggml's connection, so that the server is taken until they end, and using its devices again
    /// may wait for that.
    pub fn relay(mut self, relay: bool) -> Self {
        self.relay = relay;
        self
    }

    pub(super) fn connect_limit(&self) -> Duration {
        self.connect_timeout
    }

    pub(super) fn answer_limit(&self) -> Duration {
        self.answer_timeout
    }

    pub(super) fn uses_relay(&self) -> bool {
        self.relay
    }
}

/// Sockets take a zero for "no limit" or refuse it.
fn at_least_a_millisecond(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}
