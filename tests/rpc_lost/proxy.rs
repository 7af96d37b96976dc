//! A proxy in front of a real server that changes the server's answers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A change to an answer.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// It claims this length, but keeps its real one.
    Length(u64),
    /// It ends after this many bytes, including the length field; then the connection is closed.
    Cut(usize),
    /// It is followed by this many extra bytes.
    More(usize),
    /// Its bytes are overwritten from this offset on, repeatedly up to the end.
    Bytes(usize, Vec<u8>),
    /// It never arrives.
    Silence,
}

/// Which answers are changed; the handshake's answer is number 0.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) from: usize,
    /// Whether all later ones are changed, too.
    pub(crate) and_on: bool,
    pub(crate) change: Change,
}

/// A proxy that runs until it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    answers: Arc<AtomicUsize>,
    changed: Arc<AtomicUsize>,
    /// The sockets to the client and the server.
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

/// The commands that have an answer, by number.
const ANSWERED: [u8; 11] = [0, 1, 2, 3, 7, 8, 9, 11, 13, 14, 15];

impl Proxy {
    pub(crate) fn start(server: SocketAddr, plan: Plan) -> Self {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let proxy = Self { address, answers: Arc::default(), changed: Arc::default(), streams: Arc::default() };
        let (answers, changed, streams) = (proxy.answers.clone(), proxy.changed.clone(), proxy.streams.clone());
        thread::spawn(move || {
            // Only the first connection: later clients are refused.
            let (client, _) = listener.accept().unwrap();
            drop(listener);
            let server = TcpStream::connect(server).unwrap();
            streams.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
            let session = Session { client, server, plan, answers, changed };
            // Ends when one of the two connections does.
            drop(session.run());
        });
        proxy
    }

    /// The number of changed answers.
    pub(crate) fn changed(&self) -> usize {
        self.changed.load(Ordering::SeqCst)
    }

    /// The number of answers.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Then the server accepts the next client.
        for stream in self.streams.lock().unwrap().iter() {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

struct Session {
    client: TcpStream,
    server: TcpStream,
    plan: Plan,
    answers: Arc<AtomicUsize>,
    changed: Arc<AtomicUsize>,
}

impl Session {
    fn run(mut self) -> io::Result<()> {
        loop {
            let mut command = [0];
            self.client.read_exact(&mut command)?;
            let payload = read(&mut self.client)?;
            self.server.write_all(&[&command[..], &(payload.len() as u64).to_le_bytes(), &payload].concat())?;
            if !ANSWERED.contains(&command[0]) {
                continue;
            }
            let answer = read(&mut self.server)?;
            let n = self.answers.fetch_add(1, Ordering::SeqCst);
            let whole = [&(answer.len() as u64).to_le_bytes()[..], &answer].concat();
            if n == self.plan.from || self.plan.and_on && n > self.plan.from {
                self.changed.fetch_add(1, Ordering::SeqCst);
                if !self.change(whole)? {
                    self.client.shutdown(Shutdown::Both)?;
                    return Ok(());
                }
            } else {
                self.client.write_all(&whole)?;
            }
        }
    }

    /// Sends a changed `answer`; returns whether the connection goes on.
    fn change(&mut self, mut answer: Vec<u8>) -> io::Result<bool> {
        match &self.plan.change {
            Change::Length(n) => answer[..8].copy_from_slice(&n.to_le_bytes()),
            Change::Cut(n) => {
                self.client.write_all(answer.get(..*n).unwrap_or(&answer))?;
                return Ok(false);
            }
            Change::More(n) => answer.extend(vec![0xa5; *n]),
            Change::Bytes(at, bytes) => {
                answer.iter_mut().skip(8 + at).zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
            }
            Change::Silence => {
                // Waits until the client gives up.
                io::copy(&mut self.client, &mut io::sink())?;
                return Ok(false);
            }
        }
        self.client.write_all(&answer)?;
        Ok(true)
    }
}

/// Where proxies listen: apart from the servers of other tests, where there is such an address. The library gives a new
/// connection to an address that it knows the devices of the former, even if that server was killed since.
const HOST: &str = if cfg!(target_os = "linux") { "127.0.0.2:0" } else { "127.0.0.1:0" };

/// The addresses of all proxies of this process.
static USED: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

/// Listens where no proxy was before: the library knows a lost server again by its address, and then asks it less.
fn listener() -> TcpListener {
    let mut used = USED.lock().unwrap();
    loop {
        let listener = TcpListener::bind(HOST).unwrap();
        let address = listener.local_addr().unwrap();
        if !used.contains(&address) {
            used.push(address);
            return listener;
        }
    }
}

/// Reads a length and that many bytes.
fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    stream.read_exact(&mut len)?;
    let mut payload = vec![0; usize::try_from(u64::from_le_bytes(len)).unwrap()];
    stream.read_exact(&mut payload)?;
    Ok(payload)
}
