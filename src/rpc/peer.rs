//! A connection to a server, made, checked and watched by us before ggml hears of it.

use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use super::options::Options;
use super::timed::{Limit, Timed};
use super::wire::{CAPS, Command, HELLO_REPLY, VERSION, request_head};

/// Large enough that copying costs few system calls, small enough to stay in the cache.
const READ_BUFFER: usize = 256 << 10;

/// Joins a header to a payload that is not much larger; anything longer passes through unbuffered.
const WRITE_BUFFER: usize = 16 << 10;

/// A dead machine is given up after 10 s + 4 × 5 s without an answer to keep-alive probes.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(10));
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 4;

/// A socket, buffered both ways.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) reader: BufReader<Timed>,
    pub(super) writer: BufWriter<Timed>,
}

impl Peer {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let [reader, writer] = Timed::pair(stream);
        Ok(Self {
            reader: BufReader::with_capacity(READ_BUFFER, reader),
            writer: BufWriter::with_capacity(WRITE_BUFFER, writer),
        })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        self.reader.get_ref().stream()
    }

    /// Limits all that is sent and received from now on, together.
    pub(super) fn limit(&mut self, limit: Limit) {
        let start = Instant::now();
        self.reader.get_mut().limit(start, limit);
        self.writer.get_mut().limit(start, limit);
    }

    /// What is wrong with a connection on which nothing is due, if something is.
    pub(super) fn fault_while_idle(&self) -> Option<String> {
        match self.pending() {
            Ok(0) => Some("it closed the connection".to_owned()),
            Ok(_) => Some("it sent data that nothing asked for".to_owned()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            Err(e) => Some(format!("the connection broke: {e}")),
        }
    }

    /// Bytes that can be read at once; zero at the end of the stream, `WouldBlock` if there are none yet.
    fn pending(&self) -> io::Result<usize> {
        if !self.reader.buffer().is_empty() {
            return Ok(self.reader.buffer().len());
        }
        self.stream().set_nonblocking(true)?;
        let pending = self.stream().peek(&mut [0]);
        self.stream().set_nonblocking(false)?;
        pending
    }

    /// The length that a reply starts with.
    pub(super) fn read_len(&mut self) -> io::Result<u64> {
        let mut len = [0; 8];
        self.read_exact(&mut len)?;
        Ok(u64::from_le_bytes(len))
    }

    pub(super) fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.reader.read_exact(bytes)
    }

    /// Some of the next bytes, or an error at the end of the stream. [`BufRead::consume`] takes them.
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
        // The writer would otherwise try to deliver what is left in its buffer, and wait for a peer that takes nothing.
        // The socket may be closed already; there is nothing to be done about an error.
        drop(self.stream().shutdown(Shutdown::Both));
    }
}

/// The addresses that `endpoint`, a `host:port`, stands for.
pub(super) fn resolve(endpoint: &str) -> Result<Vec<SocketAddr>, String> {
    let addresses: Vec<_> = endpoint
        .to_socket_addrs()
        .map_err(|e| format!("not the address of a server ({e}); write it as host:port, such as 192.168.0.7:50052"))?
        .collect();
    if addresses.is_empty() { Err("the name stands for no address".to_owned()) } else { Ok(addresses) }
}

/// Connects to the first of `addresses` that listens, and shakes hands.
pub(super) fn open(addresses: &[SocketAddr], options: &Options) -> Result<(Peer, SocketAddr), String> {
    let mut failure = "the name stands for no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(address, options.connect_limit().total) {
            Ok(stream) => return greet(stream, options).map(|peer| (peer, *address)),
            Err(e) => failure = format!("can't connect to {address}: {e}; is the server running?"),
        }
    }
    Err(failure)
}

fn greet(stream: TcpStream, options: &Options) -> Result<Peer, String> {
    let limit = options.connect_limit();
    let explain = |e| explain(&e, limit.total);
    let keepalive = KEEPALIVE.with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(explain)?;
    let mut peer = Peer::new(stream).map_err(explain)?;
    peer.limit(limit);
    let request: Vec<u8> = request_head(Command::Hello, CAPS as u64).into_iter().chain([0; CAPS]).collect();
    peer.writer.write_all(&request).map_err(explain)?;
    peer.writer.flush().map_err(explain)?;

    if peer.read_len().map_err(explain)? != HELLO_REPLY as u64 {
        return Err("its answer to the handshake is not that of a ggml RPC server".to_owned());
    }
    let mut reply = [0; HELLO_REPLY];
    peer.read_exact(&mut reply).map_err(explain)?;
    let [major, minor, patch, ..] = reply;
    let [our_major, our_minor, _] = VERSION;
    // ggml's own rule: the same major version, and a minor one that is not newer than the client's.
    if major != our_major || minor > our_minor {
        return Err(format!(
            "it speaks RPC protocol {major}.{minor}.{patch}, this ggml {our_major}.{our_minor}; use a server built from \
             the same version of ggml"
        ));
    }
    Ok(peer)
}

fn explain(error: &io::Error, limit: Duration) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            "it closed the connection during the handshake; is it a ggml RPC server?".to_owned()
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => format!(
            "no answer to the handshake within {limit:?}; a server has one client at a time, so another may be connected"
        ),
        _ => format!("the connection broke during the handshake: {error}"),
    }
}

/// What an error of the connection to a server means for `command`, which had so much time.
pub(super) fn fault(error: &io::Error, command: Command, limit: Limit) -> String {
    let command = command.name();
    match error.kind() {
        ErrorKind::UnexpectedEof => format!("it closed the connection during {command}"),
        ErrorKind::TimedOut => format!("it did not finish {command} within {:?}", limit.total),
        ErrorKind::WouldBlock => format!("it was silent for {:?} during {command}", limit.silence),
        _ => format!("the connection broke during {command}: {error}"),
    }
}

/// What is wrong with an answer of `got` bytes.
pub(super) fn wrong_length(command: Command, got: u64, expected: u64) -> String {
    format!("it answered {} with {got} bytes instead of {expected}", command.name())
}
