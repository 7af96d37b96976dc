//! A fake server of one device in this process, with scripted answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Commands, by their numbers in the protocol.
pub(crate) const HELLO: u8 = 14;
pub(crate) const DEVICE_COUNT: u8 = 15;
pub(crate) const ALIGNMENT: u8 = 1;
pub(crate) const MAX_SIZE: u8 = 2;
pub(crate) const MEMORY: u8 = 11;

/// What happens to a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// A valid answer.
    Good,
    /// These bytes, preceded by their length.
    Bytes(Vec<u8>),
    /// A valid answer, sent byte by byte.
    Trickle(Duration),
    /// No answer: the connection is closed.
    Close,
}

/// Starts a server that runs until the process ends, and serves one client at a time.
pub(crate) fn start(answers: impl Fn(u8) -> Answer + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // Ends when either side closes the connection.
            drop(serve(&mut stream.unwrap(), &answers));
        }
    });
    address
}

fn serve(stream: &mut TcpStream, answers: &impl Fn(u8) -> Answer) -> io::Result<()> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let mut payload = vec![0; usize::try_from(u64::from_le_bytes(*head.last_chunk().unwrap())).unwrap()];
        stream.read_exact(&mut payload)?;
        let good = match head[0] {
            HELLO => [&ggml::rpc::VERSION[..], &[0; 1 + 24]].concat(),
            DEVICE_COUNT => 1_u32.to_le_bytes().to_vec(),
            ALIGNMENT => 32_u64.to_le_bytes().to_vec(),
            MAX_SIZE => u64::MAX.to_le_bytes().to_vec(),
            MEMORY => [1_u64 << 20, 1 << 30].map(u64::to_le_bytes).concat(),
            command => panic!("this server has no answer to command {command}"),
        };
        let whole = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat();
        match answers(head[0]) {
            Answer::Good => stream.write_all(&whole(&good))?,
            Answer::Bytes(bytes) => stream.write_all(&whole(&bytes))?,
            Answer::Trickle(pause) => {
                for byte in whole(&good) {
                    thread::sleep(pause);
                    stream.write_all(&[byte])?;
                }
            }
            Answer::Close => return Ok(()),
        }
    }
}
