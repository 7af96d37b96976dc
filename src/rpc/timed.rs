//! Reading and writing within a limit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much time something has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// In which at least a byte must move.
    pub(super) silence: Duration,
    /// For the whole.
    pub(super) total: Duration,
}

/// One direction of a connection. The time-out of a socket starts anew with every byte, so this also keeps a deadline for
/// all reads and writes together.
///
/// What takes too long is an error: `TimedOut` at the deadline, `WouldBlock` after silence.
#[derive(Debug)]
pub(super) struct Timed {
    stream: Arc<TcpStream>,
    silence: Option<Duration>,
    deadline: Option<Instant>,
}

impl Timed {
    /// Both directions of `stream`, which take one file handle between them. There is no limit yet.
    pub(super) fn pair(stream: TcpStream) -> [Self; 2] {
        let stream = Arc::new(stream);
        [Arc::clone(&stream), stream].map(|stream| Self { stream, silence: None, deadline: None })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Limits what follows, by `total` from `start` on.
    pub(super) fn limit(&mut self, start: Instant, limit: Limit) {
        self.silence = Some(limit.silence);
        // A time that no clock can tell is never.
        self.deadline = start.checked_add(limit.total);
    }

    /// Does `step` after the socket's time-out is `set` to what is left.
    fn within<R>(
        &self,
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
        if end.is_some() {
            set(&self.stream, end)?;
        }
        // Systems call it by either name when the time-out of a socket has run out.
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

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
