//! Clients that do nothing wrong: one beside two hostile ones, and many in turn.

use std::env;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::server::ServerProcess;

use crate::client::{self, Client};
use crate::fuzz::{seed, sequence, uses_at_rest};
use crate::record;
use crate::wire::{GET_TENSOR, GET_TENSOR_2D, Request};

/// How long the client is alone, and how long it isn't; `cargo xtask fuzz-rpc --beside` sets it.
const SECONDS: &str = "GGML_FUZZ_BESIDE";

/// The part of its share that the client has to get in a long run. Its share is what it gets beside two others like it.
const PART: f64 = 0.8;

/// The number of hostile sequences: in a second, and in a long run.
const MADE: [u64; 2] = [500, 5_000];

/// A session and its results.
type Known<'a> = (&'a Vec<Request>, Vec<u8>);

/// All that a session reads from tensors.
fn results(address: SocketAddr, session: &[Request]) -> io::Result<Vec<u8>> {
    let mut client = Client::greeted(address)?;
    let mut results = Vec::new();
    for request in session {
        let answer = client.tell(request, request.payload.len() as u64)?;
        if [GET_TENSOR, GET_TENSOR_2D].contains(&request.command) {
            results.extend(answer);
        }
    }
    client.settle()?;
    Ok(results)
}

/// Repeats sessions whose results are known. Returns how many it did each second.
fn work(address: SocketAddr, known: &[Known<'_>], time: Duration) -> f64 {
    let start = Instant::now();
    let mut done = 0_u32;
    while start.elapsed() < time {
        for (session, expected) in known {
            assert!(results(address, session).unwrap() == *expected, "another client changed a result");
            done += 1;
        }
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

/// How many sessions the client did each second while two others did this, again and again.
fn beside(address: SocketAddr, known: &[Known<'_>], time: Duration, other: &(dyn Fn(usize) + Sync)) -> f64 {
    let (done, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    other(next.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
        let speed = work(address, known, time);
        done.store(true, Ordering::Relaxed);
        speed
    })
}

#[test]
fn good_client_gets_the_same_results_and_its_share_beside_two_hostile_ones() {
    let long = env::var(SECONDS).ok().map(|n| n.parse().expect("a number of seconds"));
    let time = Duration::from_secs(long.unwrap_or(1));
    let sessions = record::sessions();
    let mut server = ServerProcess::of_threads(1);
    let address = SocketAddr::from(server.address);
    let known: Vec<Known<'_>> = sessions.iter().map(|session| (session, results(address, session).unwrap())).collect();
    assert!(known.iter().any(|(_, results)| !results.is_empty()));
    let seed = seed();
    // Made before: to think of them takes the server nothing.
    let hostile: Vec<_> = (0..MADE[usize::from(long.is_some())]).map(|number| sequence(seed, number).bytes).collect();
    let alone = work(address, &known, time);
    let with_good = beside(address, &known, time, &|n| {
        let (session, expected) = &known[n % known.len()];
        assert!(results(address, session).unwrap() == *expected);
    });
    let with_hostile = beside(address, &known, time, &|n| {
        assert!(client::send_all(address, &hostile[n % hostile.len()]).unwrap(), "sequence {n} hung");
    });
    assert_eq!(server.ended(Duration::ZERO), None);
    let got = with_hostile / with_good;
    println!(
        "beside: seconds={} alone={alone:.1}/s two_good={with_good:.1}/s two_hostile={with_hostile:.1}/s of_share={got:.2}",
        time.as_secs()
    );
    assert!(long.is_none() || got >= PART, "the client got {got:.2} of its share");
}

#[test]
fn server_has_nothing_more_after_a_thousand_clients() {
    let sessions = record::sessions();
    let server = ServerProcess::of_threads(1);
    let mut clients = sessions.iter().filter(|session| record::size(session) < 64 << 10).cycle();
    let mut serve = |n: usize| {
        for session in clients.by_ref().take(n) {
            results(server.address.into(), session).unwrap();
        }
    };
    serve(10);
    let few = uses_at_rest(&server, None);
    serve(990);
    let many = uses_at_rest(&server, Some(few));
    println!("threads, handles and KiB of the server after 10 clients and after 1,000: {few:?} {many:?}");
    assert!(many[0] <= few[0] && many[1] <= few[1] && many[2] <= few[2] + (8 << 10), "{few:?} {many:?}");
    assert!(server.close().success());
}
