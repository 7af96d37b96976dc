//! Reading and writing with a time limit.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A time limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLimit {
    /// At least one byte must move within this time.
    pub(super) silence: Duration,
    /// The limit for the whole exchange.
    pub(super) total: Duration,
}

/// A time-out may be longer than what is left by this part of it, which saves setting it.
const SLACK: u32 = 64;

/// One direction of a connection. A socket's time-out restarts with every byte, so this also keeps a deadline for all
/// reads and writes together.
///
/// Exceeding it is an error: `TimedOut` at the deadline, `WouldBlock` after silence.
#[derive(Debug)]
pub(super) struct Timed {
    stream: Arc<TcpStream>,
    silence: Option<Duration>,
    deadline: Option<Instant>,
    /// The time-out that the socket has in this direction: setting it takes a call of the system.
    set: Option<Duration>,
}

impl Timed {
    /// Both directions of `stream`, sharing one file handle. No limit is set yet.
    pub(super) fn pair(stream: TcpStream) -> [Self; 2] {
        let stream = Arc::new(stream);
        [Arc::clone(&stream), stream].map(|stream| Self { stream, silence: None, deadline: None, set: None })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sets the limit for the following reads and writes; `total` counts from `start`.
    pub(super) fn limit(&mut self, start: Instant, limit: TimeLimit) {
        self.silence = Some(limit.silence);
        // An overflow means no deadline.
        self.deadline = start.checked_add(limit.total);
    }

    /// Runs `step` after passing the remaining time to `set`, which sets the socket's time-out, unless it has about that.
    fn within<R>(
        &mut self,
        set: impl FnOnce(&TcpStream, Option<Duration>) -> io::Result<()>,
        step: impl FnOnce(&TcpStream) -> io::Result<R>,
    ) -> io::Result<R> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        let (end, last) = match (left, self.silence) {
            (Some(left), Some(silence)) if left > silence => (self.silence, ErrorKind::WouldBlock),
            (Some(_), _) => (left, ErrorKind::TimedOut),
            (None, _) => (self.silence, ErrorKind::WouldBlock),
        };
        let fits = |(set, end): (_, Duration)| (end..=end.saturating_add(end / SLACK)).contains(&set);
        if !self.set.zip(end).is_some_and(fits) {
            set(&self.stream, end)?;
            self.set = end;
        }
        // Which of the two errors an expired socket time-out gives depends on the system.
        step(&self.stream).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut if end.is_some() => last.into(),
            _ => e,
        })
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.within(TcpStream::set_read_timeout, |mut stream| stream.read(buffer))
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.within(TcpStream::set_write_timeout, |mut stream| stream.write(buffer))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.within(TcpStream::set_write_timeout, |mut stream| stream.write_vectored(buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
