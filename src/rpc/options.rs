//! How a connection is made and watched.

use std::num::NonZeroU64;
use std::time::Duration;

use super::timed::Limit;

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
    least_rate: NonZeroU64,
    relay: bool,
}

/// What the slowest networks that are worth it can do.
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
    /// Five seconds to connect, ten minutes to answer and a second more for each 64 KiB, through the relay.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the connection may take to be made, for each address the name stands for; how long the handshake may take
    /// after that, and then each of the questions for what the server offers, two for each device and one for their number.
    ///
    /// Each is a limit to the whole: a server that answers a byte at a time has no more.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = at_least_a_millisecond(timeout);
        self
    }

    /// How long the server may be silent while an answer is due, or refuse to take data, before it counts as lost; and how
    /// long a request and its whole answer may take. Large ones have more time for the whole, by
    /// [`least_rate`](Self::least_rate).
    ///
    /// A server computes one request at a time and answers nothing meanwhile, so this must be longer than the longest
    /// graph takes. A machine that is switched off or cut from the network is noticed earlier, by TCP keep-alive, after
    /// about thirty seconds.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = at_least_a_millisecond(timeout);
        self
    }

    /// How many bytes a second the server must take or give at least, on average over a request and its answer.
    ///
    /// A request and its answer of so many bytes together have a second more than
    /// [`answer_timeout`](Self::answer_timeout) for each time that the rate goes into them. So an honest server behind a slow
    /// network lives, and one that answers a byte at a time is lost at a time that is known before.
    pub fn least_rate(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.least_rate = bytes_per_second;
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

    pub(super) fn connect_limit(&self) -> Limit {
        Limit { silence: self.connect_timeout, total: self.connect_timeout }
    }

    /// How long a request and its answer may take that have so many bytes together.
    pub(super) fn answer_limit(&self, bytes: u64) -> Limit {
        let more = Duration::from_secs(bytes / self.least_rate);
        Limit { silence: self.answer_timeout, total: self.answer_timeout.saturating_add(more) }
    }

    pub(super) fn uses_relay(&self) -> bool {
        self.relay
    }
}

/// Sockets take a zero for "no limit" or refuse it.
fn at_least_a_millisecond(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}
