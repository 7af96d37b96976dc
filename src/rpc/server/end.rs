//! Why a connection ends.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::error::Error;
use crate::rpc::half;

/// The end of a connection. The protocol has no answer that says why, so the reason goes to the log.
#[derive(Debug)]
pub(super) enum End {
    /// The client left.
    Left,
    /// The server stops.
    Stopped,
    /// The client asked for what it may not have.
    Refused(Cow<'static, str>),
    /// The client sent no request for this time.
    Idle(Duration),
    /// The connection broke, or made no progress.
    Broken(io::Error),
    /// This process failed: a device, or the lack of memory.
    Failed(Error),
}

impl End {
    pub(super) fn refused(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(why.into())
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("it left"),
            Self::Stopped => f.write_str("the server stops"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Idle(limit) => write!(f, "it sent no request for {limit:?}"),
            Self::Broken(error) if half::meaning(error).is_some() => {
                write!(f, "refused: {}", half::meaning(error).unwrap_or_default())
            }
            Self::Broken(error) => match error.kind() {
                io::ErrorKind::WouldBlock => f.write_str("it made no progress with a request"),
                io::ErrorKind::TimedOut => f.write_str("its request took too long to transfer"),
                io::ErrorKind::UnexpectedEof => f.write_str("it left within a request"),
                _ => write!(f, "the connection broke: {error}"),
            },
            Self::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

pub(super) type Outcome<T = ()> = Result<T, End>;

/// Refuses with the reason, unless the condition holds.
#[inline]
pub(super) fn need(holds: bool, why: &'static str) -> Outcome {
    if holds { Ok(()) } else { Err(End::refused(why)) }
}
