//! One direction of a connection, in the clear or encrypted.

#[cfg(not(feature = "rpc-tls"))]
use std::convert::Infallible as State;
use std::io::{self, Read, Write};
use std::net::TcpStream;

#[cfg(feature = "rpc-tls")]
use rustls::Connection as State;

use super::timed::Timed;
#[cfg(feature = "rpc-tls")]
use super::tls::{self, Encrypted};

#[derive(Debug)]
pub(super) enum Half {
    Plain(Timed),
    #[cfg(feature = "rpc-tls")]
    Encrypted(Encrypted),
}

/// The state of TLS for a connection, where there is any.
pub(super) type Security = Option<State>;

impl Half {
    /// Both directions of `stream`.
    pub(super) fn pair(stream: TcpStream, security: Security) -> [Self; 2] {
        match security {
            None => Timed::pair(stream).map(Self::Plain),
            #[cfg(feature = "rpc-tls")]
            Some(state) => Encrypted::pair(stream, state).map(Self::Encrypted),
            #[cfg(not(feature = "rpc-tls"))]
            Some(never) => match never {},
        }
    }

    pub(super) fn socket(&self) -> &Timed {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "rpc-tls")]
            Self::Encrypted(half) => &half.socket,
        }
    }

    pub(super) fn socket_mut(&mut self) -> &mut Timed {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "rpc-tls")]
            Self::Encrypted(half) => &mut half.socket,
        }
    }

    /// The number of bytes that were received, but not read yet.
    #[cfg_attr(not(feature = "rpc-tls"), expect(clippy::unnecessary_wraps, reason = "TLS has some"))]
    pub(super) fn decrypted(&self) -> io::Result<usize> {
        match self {
            Self::Plain(_) => Ok(0),
            #[cfg(feature = "rpc-tls")]
            Self::Encrypted(half) => half.decrypted(),
        }
    }
}

/// What an error of TLS means; `None` for other errors.
pub(super) fn meaning(error: &io::Error) -> Option<String> {
    #[cfg(feature = "rpc-tls")]
    let meaning = tls::meaning(error);
    #[cfg(not(feature = "rpc-tls"))]
    let (meaning, _) = (None, error);
    meaning
}

impl Read for Half {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            #[cfg(feature = "rpc-tls")]
            Self::Encrypted(half) => half.read(buffer),
        }
    }
}

impl Write for Half {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(buffer),
            #[cfg(feature = "rpc-tls")]
            Self::Encrypted(half) => half.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            #[cfg(feature = "rpc-tls")]
            Self::Encrypted(half) => half.flush(),
        }
    }
}
