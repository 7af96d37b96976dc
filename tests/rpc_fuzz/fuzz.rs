//! Random sequences of requests, and their effect on the server.
//!
//! A sequence is the bytes of a connection. Several are sent at a time, beside a client that checks its own results. Seed
//! and number make a sequence, so that one which ended a server can be sent again.

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use testkit::server::ServerProcess;

use crate::client::{self, Client, Memory};
use crate::draw::{self, MEMORY, N};
use crate::record;
use crate::wire::{ADD, ALLOC_BUFFER, GET_TENSOR, GRAPH_COMPUTE, HELLO, Request, SET_TENSOR};

/// The number of sequences; `cargo xtask fuzz-rpc` sets it.
const RUNS: &str = "GGML_FUZZ_RUNS";
const SEED: &str = "GGML_FUZZ_SEED";
/// The number of the first sequence.
const FIRST: &str = "GGML_FUZZ_FIRST";
const DEFAULT_RUNS: u64 = 2_000;

/// The connections at a time.
const CLIENTS: u64 = 4;
/// The sequences after which the server is looked at.
const ROUND: u64 = 5_000;
/// Sessions of more bytes are sent less often.
const LARGE: usize = 64 << 10;
/// How much more memory a server may have at the end. A sanitizer keeps what was freed, and books for it.
fn loose_kib() -> u64 {
    if env::var_os("TEST_NO_LIMITS").is_some() { 256 << 10 } else { 16 << 10 }
}

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// The bytes that a client sends.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
}

impl Stream {
    fn greeted() -> Self {
        let mut stream = Self::default();
        stream.add(&Request { command: HELLO, payload: vec![0; 24] });
        stream
    }

    fn add(&mut self, request: &Request) {
        self.claim(request, request.payload.len() as u64);
    }

    /// Adds a request that claims to be `len` bytes long.
    fn claim(&mut self, request: &Request, len: u64) {
        self.bytes.push(request.command);
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(&request.payload);
    }
}

/// Random bytes, with or without a handshake.
fn noise(rng: &mut Rng) -> Stream {
    let mut stream = if rng.bool() { Stream::greeted() } else { Stream::default() };
    stream.bytes.extend((0..rng.usize(1..3000)).map(|_| rng.u8(..)));
    stream
}

/// Small requests, of which every `1 / rate`th is changed; none for a rate of zero.
fn requests(rng: &mut Rng, rate: usize) -> Stream {
    let mut stream = Stream::greeted();
    let allocate = Request { command: ALLOC_BUFFER, payload: [&[0; 4][..], &MEMORY.to_le_bytes()].concat() };
    let mut memory = client::first_memory();
    stream.add(&allocate);
    for _ in 0..rng.u8(1..12) {
        if rng.u8(0..20) == 0 {
            stream.add(&draw::free(memory));
            if rate == 0 || rng.bool() {
                stream.add(&allocate);
                memory = client::next_memory(memory);
            }
        }
        let mut request = draw::sane(rng, memory);
        if rate == 0 && request.command == crate::wire::GRAPH_RECOMPUTE {
            request = Request { command: GRAPH_COMPUTE, payload: draw::graph(memory, ADD) };
        }
        let changed = rate > 0 && rng.usize(0..rate) == 0;
        let len = if changed { draw::spoil(rng, memory, &mut request) } else { request.payload.len() as u64 };
        stream.claim(&request, len);
    }
    stream
}

/// A recorded session, of which some requests are changed, left out, or sent twice or at another time.
fn replay(rng: &mut Rng) -> Stream {
    let sessions = record::sessions();
    let pick = |rng: &mut Rng| loop {
        let session = &sessions[rng.usize(0..sessions.len())];
        if record::size(session) < LARGE || rng.u8(0..20) == 0 {
            return session;
        }
    };
    let mut session = pick(rng).clone();
    let place = |rng: &mut Rng, session: &Vec<Request>| rng.usize(0..session.len());
    match rng.u8(0..16) {
        // Requests of other sessions, alone or to their end.
        0..=2 => {
            let other = pick(rng);
            let request = other[rng.usize(0..other.len())].clone();
            session.insert(place(rng, &session), request);
        }
        3 => {
            let other = pick(rng);
            session.truncate(place(rng, &session) + 1);
            session.extend_from_slice(&other[rng.usize(0..other.len())..]);
        }
        4 => drop(session.remove(place(rng, &session))),
        5 => {
            let (a, b) = (place(rng, &session), place(rng, &session));
            session.swap(a, b);
        }
        6 => {
            let again = session[place(rng, &session)].clone();
            session.insert(place(rng, &session), again);
        }
        _ => {}
    }
    // Few changes, so that what comes after a changed request is often reached.
    let rate = rng.usize(2..40);
    let mut stream = Stream::greeted();
    for mut request in session {
        let changed = rng.usize(0..rate) == 0;
        let len = if changed { draw::change(rng, &mut request) } else { request.payload.len() as u64 };
        stream.claim(&request, len);
    }
    stream
}

pub(crate) fn sequence(seed: u64, number: u64) -> Stream {
    let mut rng = Rng::with_seed(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    match number % 20 {
        0 => noise(&mut rng),
        1..=4 => requests(&mut rng, 3),
        _ => replay(&mut rng),
    }
}

/// A client that does nothing wrong, beside the others.
struct Good {
    client: Client,
    memory: Memory,
}

impl Good {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut client = Client::greeted(address)?;
        let memory = client.allocate(MEMORY)?;
        Ok(Self { client, memory })
    }

    /// Adds two vectors on the server.
    fn works(&mut self, x: f32) -> io::Result<()> {
        let numbers = |x: f32| [x; N as usize].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        for (i, value) in [(0, x), (1, 2.0)] {
            let place = draw::place(self.memory, i, 0);
            self.client.ask(SET_TENSOR, &[&place[..296], &[0; 9], &numbers(value)].concat())?;
        }
        self.client.ask(GRAPH_COMPUTE, &draw::graph(self.memory, ADD))?;
        let get = [draw::place(self.memory, 2, 0), u64::from(4 * N).to_le_bytes().to_vec()].concat();
        assert!(self.client.ask(GET_TENSOR, &get)? == numbers(x + 2.0), "another client changed the result");
        Ok(())
    }
}

/// What became of servers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    sequences: u64,
    /// How often servers ended in this way.
    ended: BTreeMap<String, u64>,
    hung: u64,
    /// Servers that kept what their clients had.
    leaked: u64,
}

/// Sends the sequences of these numbers, [`CLIENTS`] at a time, beside a good client.
fn round(address: SocketAddr, make: &(dyn Fn(u64) -> Stream + Sync), numbers: std::ops::Range<u64>, tally: &mut Tally) {
    let (next, hung, done) = (AtomicU64::new(numbers.start), AtomicU64::new(0), AtomicBool::new(false));
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut good = Good::connect(address)?;
            let mut i = 0_u16;
            while !done.load(Ordering::Relaxed) {
                good.works((i % 1000).into())?;
                i += 1;
                thread::sleep(Duration::from_millis(1));
            }
            io::Result::Ok(())
        });
        let send = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return;
                }
                match client::send_all(address, &make(number).bytes) {
                    Ok(true) => {}
                    Ok(false) => {
                        println!("  sequence {number} hung");
                        hung.fetch_add(1, Ordering::Relaxed);
                    }
                    // Nobody listens any more.
                    Err(e) => return failed.lock().unwrap().push(format!("{e}, at sequence {number}")),
                }
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(send)).collect();
        for client in clients {
            client.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        if let Err(e) = good.join().unwrap() {
            failed.lock().unwrap().push(format!("the good client: {e}"));
        }
    });
    tally.sequences += numbers.end - numbers.start;
    tally.hung += hung.into_inner();
    for failure in failed.into_inner().unwrap() {
        println!("  {failure}");
        *tally.ended.entry("a client was not served".to_owned()).or_default() += 1;
    }
}

/// Threads, handles and KiB of a process.
fn uses(server: &ServerProcess) -> [u64; 3] {
    let folder = format!("/proc/{}", server.id());
    let count = |what: &str| std::fs::read_dir(format!("{folder}/{what}")).map_or(0, |list| list.count() as u64);
    let pages = std::fs::read_to_string(format!("{folder}/statm")).unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    [count("task"), count("fd"), 4 * pages]
}

/// Waits until the server has no client, and counts what it uses then.
pub(crate) fn uses_at_rest(server: &ServerProcess, before: Option<[u64; 3]>) -> [u64; 3] {
    let start = Instant::now();
    loop {
        let now = uses(server);
        let rests = before.map_or(start.elapsed() > Duration::from_secs(1), |[threads, handles, _]| {
            now[0] <= threads && now[1] <= handles
        });
        if rests || start.elapsed() > Duration::from_secs(10) {
            return now;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends `runs` sequences.
fn run(make: &(dyn Fn(u64) -> Stream + Sync), runs: u64) -> Tally {
    // Before there is a child.
    record::sessions();
    let first = variable(FIRST).unwrap_or(0);
    let (mut tally, mut begin, end) = (Tally::default(), first, first + runs);
    let mut server = ServerProcess::of_threads(1);
    let mut before = None;
    while begin < end {
        let until = end.min(begin + ROUND);
        round(server.address.into(), make, begin..until, &mut tally);
        if let Some(how) = server.ended(Duration::ZERO) {
            println!("  a server ended in sequences {begin} to {until}: {how}");
            *tally.ended.entry(how).or_default() += 1;
            (server, before) = (ServerProcess::of_threads(1), None);
        } else if before.is_none() {
            before = Some(uses_at_rest(&server, None));
        }
        begin = until;
    }
    if let Some(before) = before {
        let after = uses_at_rest(&server, Some(before));
        println!("  threads, handles and KiB of the server after a round and at the end: {before:?} {after:?}");
        let grew = after[0] > before[0] || after[1] > before[1] || after[2] > before[2] + loose_kib();
        tally.leaked += u64::from(grew);
    }
    // It checks that nothing is left.
    tally.leaked += u64::from(!server.close().success());
    tally
}

pub(crate) fn seed() -> u64 {
    let seed = variable(SEED).unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED}={seed}");
    seed
}

/// Otherwise the other tests would prove nothing.
#[test]
fn server_understands_valid_requests() {
    let sessions = record::sessions();
    let server = ServerProcess::of_threads(1);
    let mut rng = Rng::with_seed(seed());
    for _ in 0..50 {
        client::send_all_served(server.address.into(), &requests(&mut rng, 0).bytes);
    }
    for session in sessions {
        let mut client = Client::greeted(server.address.into()).unwrap();
        for request in session {
            client.tell(request, request.payload.len() as u64).unwrap();
        }
        client.settle().unwrap();
    }
}

#[test]
fn server_survives_hostile_clients() {
    let (runs, seed, start) = (variable(RUNS).unwrap_or(DEFAULT_RUNS), seed(), Instant::now());
    record::sessions();
    let (recorded, start) = (start.elapsed(), Instant::now());
    let tally = run(&|number| sequence(seed, number), runs);
    for (end, n) in &tally.ended {
        println!("  {n:6}  {end}");
    }
    let ended: u64 = tally.ended.values().sum();
    let (hung, leaked, sequences) = (tally.hung, tally.leaked, tally.sequences);
    println!("  {:.0} s to record sessions, {:.0} s to send", recorded.as_secs_f32(), start.elapsed().as_secs_f32());
    println!("fuzz-rpc: sequences={sequences} ended={ended} hung={hung} leaked={leaked}");
    assert_eq!((ended, hung, leaked), (0, 0, 0));
}
