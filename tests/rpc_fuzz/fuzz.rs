//! Random sequences of requests, and their effect on the server.

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::time::Duration;

use fastrand::Rng;
use testkit::server::ServerProcess;

use crate::client::Client;
use crate::draw::{self, MEMORY, N};
use crate::wire::{self, ADD, GET_TENSOR, GRAPH_COMPUTE, Request, SET_TENSOR};

/// The number of sequences; `cargo xtask fuzz-rpc` sets it.
const RUNS: &str = "GGML_FUZZ_RUNS";
const SEED: &str = "GGML_FUZZ_SEED";
const DEFAULT_RUNS: u64 = 100;

/// How often servers ended in each way, with the last request before.
type Deaths = BTreeMap<(String, &'static str), u64>;

/// How a sequence is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Valid requests.
    Sane,
    /// Changed requests.
    Spoilt,
    /// Random bytes, with or without a handshake.
    Noise,
}

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Sends a sequence; `last` is the last command sent.
fn sequence(rng: &mut Rng, server: &ServerProcess, kind: Kind, last: &mut Option<u8>) -> io::Result<()> {
    let address = server.address.into();
    if kind == Kind::Noise {
        let mut client = if rng.bool() { Client::greeted(address)? } else { Client::connect(address)? };
        let noise: Vec<u8> = (0..rng.usize(1..3000)).map(|_| rng.u8(..)).collect();
        *last = None;
        return client.send(&noise);
    }
    let mut client = Client::greeted(address)?;
    let mut memory = client.allocate(MEMORY)?;
    for _ in 0..rng.u8(1..12) {
        if rng.u8(0..20) == 0 {
            *last = Some(wire::FREE_BUFFER);
            let free = draw::free(memory);
            client.ask(free.command, &free.payload)?;
            if kind == Kind::Sane || rng.bool() {
                memory = client.allocate(MEMORY)?;
            }
        }
        let mut request = draw::sane(rng, memory);
        if kind == Kind::Sane && request.command == wire::GRAPH_RECOMPUTE {
            request = Request { command: GRAPH_COMPUTE, payload: draw::graph(memory, ADD) };
        }
        let mut len = request.payload.len() as u64;
        if kind == Kind::Spoilt && rng.u8(0..3) == 0 {
            len = draw::spoil(rng, memory, &mut request);
        }
        *last = Some(request.command);
        client.tell(&request, len)?;
        if len != request.payload.len() as u64 {
            // The server may wait for more data. Closing the connection tells it that there is none.
            return Ok(());
        }
        client.settle()?;
    }
    Ok(())
}

/// How the server ended, if it no longer serves.
fn death(server: &mut ServerProcess, error: Option<&io::Error>) -> Option<String> {
    let silent = |e: &io::Error| matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    let greeted = Client::greeted(server.address.into()).err();
    if greeted.is_none() && !error.is_some_and(silent) {
        return None;
    }
    let hangs = error.into_iter().chain(&greeted).any(silent);
    // A process's sockets are closed before it has ended. A C++ exception ends only the server's thread.
    Some(
        server
            .ended(Duration::from_secs(1))
            .unwrap_or_else(|| if hangs { "hangs" } else { "listens no more" }.to_owned()),
    )
}

/// Sends `runs` sequences; returns how many servers ended in which way.
fn run(kind: Kind, runs: u64, rng: &mut Rng) -> Deaths {
    let mut server = ServerProcess::start();
    let mut deaths = Deaths::new();
    for _ in 0..runs {
        let mut last = None;
        let sent = sequence(rng, &server, kind, &mut last);
        if kind == Kind::Sane {
            sent.as_ref().expect("a sane client is served");
        }
        if let Some(end) = death(&mut server, sent.as_ref().err()) {
            *deaths.entry((end, last.map_or("noise", wire::name))).or_default() += 1;
            server = ServerProcess::start();
        }
    }
    deaths
}

fn rng() -> Rng {
    let seed = variable(SEED).unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED}={seed}");
    Rng::with_seed(seed)
}

/// Otherwise the other tests would prove nothing.
#[test]
fn server_understands_valid_requests() {
    let server = ServerProcess::start();
    let mut client = Client::greeted(server.address.into()).unwrap();
    let memory = client.allocate(MEMORY).unwrap();
    let numbers = |x: f32| [x; N as usize].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    for (i, value) in [(0, 1.5), (1, 2.0)] {
        let place = draw::place(memory, i, 0);
        client.ask(SET_TENSOR, &[&place[..296], &[0; 9], &numbers(value)].concat()).unwrap();
    }
    client.ask(GRAPH_COMPUTE, &draw::graph(memory, ADD)).unwrap();
    let get = [draw::place(memory, 2, 0), u64::from(4 * N).to_le_bytes().to_vec()].concat();
    assert_eq!(client.ask(GET_TENSOR, &get).unwrap(), numbers(3.5));
    drop(client);
    assert_eq!(run(Kind::Sane, 50, &mut rng()), Deaths::new());
}

/// Without knowing the protocol a client does no harm, except for requesting more memory than there is.
#[test]
fn server_survives_noise() {
    let runs = variable(RUNS).unwrap_or(DEFAULT_RUNS);
    let deaths = run(Kind::Noise, runs, &mut rng());
    println!("noise: {runs} sequences, {deaths:?}");
    assert!(deaths.values().sum::<u64>() <= runs / 20, "{deaths:?}");
}

/// Servers are known to die; this test checks that each was replaced and that this process survives.
#[test]
fn fuzzing_survives_malformed_requests() {
    let runs = variable(RUNS).unwrap_or(DEFAULT_RUNS);
    let deaths = run(Kind::Spoilt, runs, &mut rng());
    let dead: u64 = deaths.values().sum();
    println!("spoilt requests: {dead} of {runs} sequences ended the server");
    for ((end, command), n) in &deaths {
        println!("  {n:6}  {end} after {command}");
    }
    assert!(dead < runs, "no sequence at all was survived: is there a server?");
}
