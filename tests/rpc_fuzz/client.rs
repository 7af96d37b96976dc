//! A client that sends arbitrary requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::wire::{self, ALLOC_BUFFER, BUFFER_GET_BASE, DEVICE_COUNT, HELLO, Request};

/// Longer than a server needs for any valid request.
const LIMIT: Duration = Duration::from_secs(10);

/// More than any answer to a valid request.
const MOST: u64 = 1 << 20;

pub(crate) struct Client {
    stream: TcpStream,
}

/// Memory on the server, as the server reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) buffer: u64,
    pub(crate) base: u64,
}

impl Client {
    /// Connects without a handshake.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
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
