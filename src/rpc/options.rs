//! Options of a connection.

use std::num::NonZeroU64;
use std::time::Duration;

use super::timed::Limit;

/// Options of a connection to a server: time-outs, minimum transfer rate, relay.
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
    least_rate: NonZeroU64,
    relay: bool,
}

/// The rate of the slowest usable networks, in bytes per second.
const LEAST_RATE: NonZeroU64 = NonZeroU64::new(64 << 10).unwrap();

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(600),
            least_rate: LEAST_RATE,
            relay: true,
        }
    }
}

impl Options {
    /// Returns the defaults: 5 s to connect, 10 min to answer plus 1 s per 64 KiB, through the relay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time limit for connecting to each address that the name resolves to, then for the handshake, then for
    /// each query of what the server offers (two per device and one for their number).
    ///
    /// Each limit covers the whole exchange: a server that answers byte by byte gets no more time.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = at_least_a_millisecond(timeout);
        self
    }

    /// Sets how long the server may be silent while an answer is due, or refuse to take data, before it counts as lost;
    /// also the limit for a request and its whole answer. Large transfers get more time for the whole; see
    /// [`least_rate`](Self::least_rate).
    ///
    /// A server handles one request at a time and sends nothing while it computes, so this must exceed the computation
    /// time of the longest graph. A machine that is switched off or disconnected is detected earlier, by TCP
    /// keep-alive, after about 30 s.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = at_least_a_millisecond(timeout);
        self
    }

    /// Sets the minimum transfer rate in bytes per second, as an average over a request and its answer.
    ///
    /// A request and its answer of `n` bytes together may take `n / least_rate` seconds longer than
    /// [`answer_timeout`](Self::answer_timeout). So a working server behind a slow network is kept, and one that
    /// answers byte by byte is lost after a bounded time.
    pub fn least_rate(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.least_rate = bytes_per_second;
        self
    }

    /// Sets whether ggml talks to the server through a relay in this process; the default is `true`.
    ///
    /// ggml aborts the process when a server is lost or answers badly. The relay prevents that, at the cost of copying
    /// the data through the loopback. Without it, every later loss of the server aborts the process (no undefined
    /// behaviour), the time-outs apply to the handshake only, and the address must be IPv4. Child processes then
    /// inherit ggml's socket: the server stays reserved until they end, and using its devices may wait for that.
    pub fn relay(mut self, relay: bool) -> Self {
        self.relay = relay;
        self
    }

    pub(super) fn connect_limit(&self) -> Limit {
        Limit { silence: self.connect_timeout, total: self.connect_timeout }
    }

    /// The time limit for a request and its answer of `bytes` bytes together.
    pub(super) fn answer_limit(&self, bytes: u64) -> Limit {
        let more = Duration::from_secs(bytes / self.least_rate);
        Limit { silence: self.answer_timeout, total: self.answer_timeout.saturating_add(more) }
    }

    pub(super) fn uses_relay(&self) -> bool {
        self.relay
    }
}

/// Raises a zero, which sockets refuse or take as "no limit".
fn at_least_a_millisecond(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}
