//! Options of a connection.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use super::half::Security;
use super::timed::TimeLimit;
#[cfg(feature = "rpc-tls")]
use super::tls::{self, Tls};
use crate::options::options;

options! {
    /// Options of a connection to a server: time-outs, minimum transfer rate, relay.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ggml::rpc::Options;
    ///
    /// let s = Duration::from_secs;
    /// let options = Options::new().with_connect_timeout(s(2)).with_answer_timeout(s(60));
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Options {
        /// 5 s to connect, 10 min to answer plus 1 s per 64 KiB, through the relay.
        new();
        /// Sets the time limit for connecting to each address that the name resolves to, then for the handshake, then
        /// for each query of what the server offers (two per device and one for their number).
        ///
        /// Each limit covers the whole exchange: a server that answers byte by byte gets no more time.
        with_connect_timeout(connect_timeout: Duration = Duration::from_secs(5));
        /// Sets how long the server may be silent while an answer is due, or refuse to take data, before it counts as
        /// lost; also the limit for a request and its whole answer. Large transfers get more time for the whole; see
        /// [`with_least_rate`](Self::with_least_rate).
        ///
        /// A server handles one request at a time and sends nothing while it computes, so this must exceed the
        /// computation time of the longest graph. A machine that is switched off or disconnected is detected earlier, by
        /// TCP keep-alive, after about 30 s.
        with_answer_timeout(answer_timeout: Duration = Duration::from_secs(600));
        /// Sets the minimum transfer rate in bytes per second, as an average over a request and its answer. The default
        /// is that of the slowest usable networks.
        ///
        /// A request and its answer of `n` bytes together may take `n / least_rate` seconds longer than
        /// [`with_answer_timeout`](Self::with_answer_timeout). So a working server behind a slow network is kept, and
        /// one that answers byte by byte is lost after a bounded time.
        with_least_rate(least_rate: NonZeroU64 = const { NonZeroU64::new(64 << 10).unwrap() });
        /// Sets whether ggml talks to the server through a relay in this process.
        ///
        /// ggml aborts the process when a server is lost or answers badly. The relay prevents that, at the cost of
        /// copying the data through the loopback. Without it, every later loss of the server aborts the process (no
        /// undefined behaviour), the time-outs apply to the handshake only, and the address must be IPv4. Child
        /// processes then inherit ggml's socket: the server stays reserved until they end, and using its devices may
        /// wait for that.
        with_relay(relay: bool = true);
        /// Sets that the server must prove who it is, with what this side shows to it; all is encrypted then. Needs the
        /// relay.
        with_tls(tls: Option<Tls> = None, into; if feature = "rpc-tls");
    }
}

impl Options {
    pub(super) fn connect_limit(&self) -> TimeLimit {
        let timeout = at_least_a_millisecond(self.connect_timeout);
        TimeLimit { silence: timeout, total: timeout }
    }

    /// The time limit for a request and its answer of `bytes` bytes together.
    pub(super) fn answer_limit(&self, bytes: u64) -> TimeLimit {
        let timeout = at_least_a_millisecond(self.answer_timeout);
        TimeLimit { silence: timeout, total: timeout.saturating_add(Duration::from_secs(bytes / self.least_rate)) }
    }

    /// What a connection to `endpoint` begins with, if it is to be encrypted.
    #[cfg_attr(not(feature = "rpc-tls"), expect(clippy::unused_self, reason = "TLS is its"))]
    pub(super) fn security(&self, endpoint: &str) -> io::Result<Security> {
        #[cfg(feature = "rpc-tls")]
        let security = self.tls.as_ref().map(|tls| tls.connect(endpoint)).transpose();
        #[cfg(not(feature = "rpc-tls"))]
        let (security, _) = (Ok(None), endpoint);
        security
    }

    /// Whether a connection to `known` that was made with the options `of` is as good as one to `endpoint` with these: by
    /// the same certificates, to the same host.
    #[cfg(feature = "rpc-tls")]
    pub(super) fn shares(&self, endpoint: &str, of: &Self, known: &str) -> bool {
        self.tls == of.tls && (self.tls.is_none() || tls::host(endpoint) == tls::host(known))
    }

    pub(super) fn uses_relay(&self) -> bool {
        self.relay
    }
}

/// Raises a zero, which sockets refuse or take as "no limit".
fn at_least_a_millisecond(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}
