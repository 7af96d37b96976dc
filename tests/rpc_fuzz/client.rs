//! A client that sends arbitrary requests.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::wire::{self, ALLOC_BUFFER, BUFFER_GET_BASE, DEVICE_COUNT, HELLO, Request};

/// Longer than a server needs for any valid request.
const LIMIT: Duration = Duration::from_secs(30);

/// More than any answer to a valid request.
const MOST: u64 = 16 << 20;

pub(crate) struct Client {
    stream: TcpStream,
}

/// Memory on the server, as the server reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) buffer: u64,
    pub(crate) base: u64,
}

/// The memory that a client gets first.
pub(crate) fn first_memory() -> Memory {
    Memory { buffer: 1, base: 1 << 32 }
}

/// The memory that a client gets after this one, if that is small.
pub(crate) fn next_memory(memory: Memory) -> Memory {
    Memory { buffer: memory.buffer + 1, base: memory.base + (4 << 20) }
}

/// Sends bytes and closes the connection for writing; then waits until the server closes it. Whether it did so in time; an
/// error means that the server can't be connected to.
pub(crate) fn send_all(address: SocketAddr, bytes: &[u8]) -> io::Result<bool> {
    let client = Client::connect(address)?;
    Ok(client
        .send_and_wait(bytes)
        .is_none_or(|e| !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)))
}

/// [`send_all`] of valid requests, after which the server closes the connection because the client does.
pub(crate) fn send_all_served(address: SocketAddr, bytes: &[u8]) {
    let error = Client::connect(address).unwrap().send_and_wait(bytes);
    assert!(error.is_none(), "{error:?}");
}

impl Client {
    /// Why the connection failed, if it did before the server closed it.
    fn send_and_wait(mut self, bytes: &[u8]) -> Option<io::Error> {
        // The server may have closed the connection already.
        let sent = self.stream.write_all(bytes).and_then(|()| self.stream.shutdown(Shutdown::Write));
        io::copy(&mut self.stream, &mut io::sink()).and(sent).err()
    }

    /// Connects without a handshake.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    pub(crate) fn greeted(address: SocketAddr) -> io::Result<Self> {
        let mut client = Self::connect(address)?;
        client.ask(HELLO, &[0; 24])?;
        Ok(client)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request that claims to be `len` bytes long, and reads the answer if one is due.
    pub(crate) fn tell(&mut self, request: &Request, len: u64) -> io::Result<Vec<u8>> {
        self.send(&[&[request.command][..], &len.to_le_bytes(), &request.payload].concat())?;
        if wire::is_answered(request.command) { self.answer() } else { Ok(Vec::new()) }
    }

    /// Waits for what the server sends, and returns the number of bytes: zero where it closed the connection.
    pub(crate) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read(bytes)
    }

    fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut len = [0; 8];
        self.stream.read_exact(&mut len)?;
        let mut answer = Vec::new();
        let len = u64::from_le_bytes(len).min(MOST);
        (&mut self.stream).take(len).read_to_end(&mut answer)?;
        if answer.len() as u64 == len { Ok(answer) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(crate) fn ask(&mut self, command: u8, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.tell(&Request { command, payload: payload.to_vec() }, payload.len() as u64)
    }

    /// Waits until the server has handled all requests.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        self.ask(DEVICE_COUNT, &[]).map(drop)
    }

    pub(crate) fn allocate(&mut self, size: u64) -> io::Result<Memory> {
        let number = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("an answer of eight bytes"));
        let answer = self.ask(ALLOC_BUFFER, &[&[0; 4][..], &size.to_le_bytes()].concat())?;
        let buffer = number(&answer);
        let base = number(&self.ask(BUFFER_GET_BASE, &buffer.to_le_bytes())?);
        Ok(Memory { buffer, base })
    }
}
