//! A checked and time-limited connection to a server.

use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use super::half::{self, Half, Security};
use super::options::Options;
use super::timed::TimeLimit;
use super::wire::{CAPS, Command, HELLO_REPLY, VERSION, request_head};
use crate::device::lost::ConnectionError;

/// Large enough to need few system calls, small enough for the CPU cache.
const READ_BUFFER: usize = 256 << 10;

/// Joins a header with a short payload; longer payloads pass through unbuffered.
const WRITE_BUFFER: usize = 16 << 10;

/// A dead machine is detected after 10 s + 4 × 5 s without an answer to keep-alive probes.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(10));
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 4;

const NO_ADDRESS: &str = "the name stands for no address";

/// A socket with a read and a write buffer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) reader: BufReader<Half>,
    pub(super) writer: BufWriter<Half>,
}

impl Peer {
    pub(super) fn new(stream: TcpStream, security: Security) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let [reader, writer] = Half::pair(stream, security);
        Ok(Self {
            reader: BufReader::with_capacity(READ_BUFFER, reader),
            writer: BufWriter::with_capacity(WRITE_BUFFER, writer),
        })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        self.reader.get_ref().socket().stream()
    }

    /// Sets a common limit for everything sent and received from now on.
    pub(super) fn limit(&mut self, limit: TimeLimit) {
        let start = Instant::now();
        self.reader.get_mut().socket_mut().limit(start, limit);
        self.writer.get_mut().socket_mut().limit(start, limit);
    }

    /// Why an idle connection (no answer is due) is unusable; `None` if it is fine.
    pub(super) fn error_while_idle(&self) -> Option<ConnectionError> {
        match self.pending() {
            Ok(0) => Some("it closed the connection".into()),
            Ok(_) => Some("it sent data that nothing asked for".into()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            Err(e) => Some(ConnectionError::caused("the connection broke", e)),
        }
    }

    /// The number of bytes that can be read at once; zero at the end of the stream, `WouldBlock` if there are none yet.
    fn pending(&self) -> io::Result<usize> {
        if !self.reader.buffer().is_empty() {
            return Ok(self.reader.buffer().len());
        }
        match self.reader.get_ref().decrypted()? {
            0 => {}
            decrypted => return Ok(decrypted),
        }
        self.stream().set_nonblocking(true)?;
        let pending = self.stream().peek(&mut [0]);
        self.stream().set_nonblocking(false)?;
        pending
    }

    /// Reads the length field of a reply.
    pub(super) fn read_len(&mut self) -> io::Result<u64> {
        let mut len = [0; 8];
        self.read_exact(&mut len)?;
        Ok(u64::from_le_bytes(len))
    }

    pub(super) fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.reader.read_exact(bytes)
    }

    /// The next bytes, or an error at the end of the stream. [`BufRead::consume`] removes them.
    pub(super) fn read_some(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.reader.fill_buf() {
                Ok([]) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(self.reader.buffer()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Without this, the writer's drop flushes its buffer, which blocks if the peer reads nothing. The error is
        // ignored: the socket may be closed already.
        drop(self.stream().shutdown(Shutdown::Both));
    }
}

/// Resolves `endpoint`, a `host:port`.
pub(super) fn resolve(endpoint: &str) -> Result<Vec<SocketAddr>, ConnectionError> {
    let addresses: Vec<_> = endpoint
        .to_socket_addrs()
        .map_err(|e| {
            let reason = format!("not the address of a server ({e}); write it as host:port, such as 192.168.0.7:50052");
            ConnectionError::new(reason, e)
        })?
        .collect();
    if addresses.is_empty() { Err(NO_ADDRESS.into()) } else { Ok(addresses) }
}

/// Connects to the first of `addresses` that listens, and performs the handshake. They are those of `endpoint`.
pub(super) fn open(
    endpoint: &str,
    addresses: &[SocketAddr],
    options: &Options,
) -> Result<(Peer, SocketAddr), ConnectionError> {
    let mut failure = NO_ADDRESS.into();
    for address in addresses {
        match TcpStream::connect_timeout(address, options.connect_limit().total) {
            Ok(stream) => return greet(endpoint, stream, options).map(|peer| (peer, *address)),
            Err(e) => {
                failure = ConnectionError::new(format!("can't connect to {address}: {e}; is the server running?"), e);
            }
        }
    }
    Err(failure)
}

fn greet(endpoint: &str, stream: TcpStream, options: &Options) -> Result<Peer, ConnectionError> {
    let limit = options.connect_limit();
    let security = options
        .security(endpoint)
        .map_err(|e| ConnectionError::caused("TLS needs a host whose name or IP address a certificate can have", e))?;
    let secure = security.is_some();
    let explain = |e| explain(e, limit.total, secure);
    keep_alive(&stream).map_err(explain)?;
    let mut peer = Peer::new(stream, security).map_err(explain)?;
    peer.limit(limit);
    let request: Vec<u8> = request_head(Command::Hello, CAPS as u64).into_iter().chain([0; CAPS]).collect();
    peer.writer.write_all(&request).map_err(explain)?;
    peer.writer.flush().map_err(explain)?;

    if peer.read_len().map_err(explain)? != HELLO_REPLY as u64 {
        return Err("its answer to the handshake is not that of a ggml RPC server".into());
    }
    let mut reply = [0; HELLO_REPLY];
    peer.read_exact(&mut reply).map_err(explain)?;
    let [major, minor, patch, ..] = reply;
    let [our_major, our_minor, _] = VERSION;
    // As in ggml: the major version must match, and the server's minor version must not be newer than the client's.
    if major != our_major || minor > our_minor {
        return Err(format!(
            "it speaks RPC protocol {major}.{minor}.{patch}, this ggml {our_major}.{our_minor}; use a server built from \
             the same version of ggml"
        )
        .into());
    }
    Ok(peer)
}

/// Makes the system notice that the other machine is gone.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let keepalive = KEEPALIVE.with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn explain(error: io::Error, limit: Duration, secure: bool) -> ConnectionError {
    if let Some(meaning) = half::meaning(&error) {
        return ConnectionError::new(meaning, error);
    }
    let reason = match error.kind() {
        ErrorKind::UnexpectedEof if secure => {
            "it closed the connection during the handshake; does it speak TLS, and accept this side's certificate?"
                .to_owned()
        }
        ErrorKind::UnexpectedEof => {
            "it closed the connection during the handshake; is it a ggml RPC server, and one without TLS?".to_owned()
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => format!(
            "no answer to the handshake within {limit:?}; ggml's own server has one client at a time, so another may be \
             connected"
        ),
        _ => format!("the connection broke during the handshake: {error}"),
    };
    ConnectionError::new(reason, error)
}

/// Describes an error of the connection to a server during `command`, which had the given limit.
pub(super) fn fault(error: io::Error, command: Command, limit: TimeLimit) -> ConnectionError {
    let command = command.name();
    let reason = match error.kind() {
        ErrorKind::UnexpectedEof => format!("it closed the connection during {command}"),
        ErrorKind::TimedOut => format!("it did not finish {command} within {:?}", limit.total),
        ErrorKind::WouldBlock => format!("it was silent for {:?} during {command}", limit.silence),
        _ => format!("the connection broke during {command}: {error}"),
    };
    ConnectionError::new(reason, error)
}

/// Describes an answer of the wrong length.
pub(super) fn wrong_length(command: Command, got: u64, expected: u64) -> ConnectionError {
    format!("it answered {} with {got} bytes instead of {expected}", command.name()).into()
}
