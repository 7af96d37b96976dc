//! Clients that do nothing wrong: one beside two hostile ones, and many in turn.

use std::env;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::server::ServerProcess;

use crate::client::{self, Client};
use crate::fuzz::{seed, sequence, uses_at_rest};
use crate::record;
use crate::wire::{GET_TENSOR, GET_TENSOR_2D, Request};

/// How long the client is alone, and how long it isn't; `cargo xtask fuzz-rpc --beside` sets it.
const SECONDS: &str = "GGML_FUZZ_BESIDE";

/// The part of its share that the client has to get in a long run.
const PART: f64 = 0.8;

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
fn work(address: SocketAddr, known: &[(&Vec<Request>, Vec<u8>)], time: Duration) -> f64 {
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

#[test]
fn good_client_gets_the_same_results_and_its_share_beside_two_hostile_ones() {
    let long = env::var(SECONDS).ok().map(|n| n.parse().expect("a number of seconds"));
    let time = Duration::from_secs(long.unwrap_or(1));
    let sessions = record::sessions();
    let mut server = ServerProcess::of_threads(1);
    let address = SocketAddr::from(server.address);
    let known: Vec<_> = sessions.iter().map(|session| (session, results(address, session).unwrap())).collect();
    assert!(known.iter().any(|(_, results)| !results.is_empty()));
    let alone = work(address, &known, time);
    let (seed, done) = (seed(), AtomicBool::new(false));
    let (beside, sent) = thread::scope(|scope| {
        let hostile = |first: u64| {
            let done = &done;
            move || {
                let mut number = first;
                while !done.load(Ordering::Relaxed) {
                    assert!(
                        client::send_all(address, &sequence(seed, number).bytes).unwrap(),
                        "sequence {number} hung"
                    );
                    number += 2;
                }
                number / 2
            }
        };
        let hostile = [0, 1].map(|first| scope.spawn(hostile(first)));
        let beside = work(address, &known, time);
        done.store(true, Ordering::Relaxed);
        (beside, hostile.map(|thread| thread.join().unwrap()).iter().sum::<u64>())
    });
    assert_eq!(server.ended(Duration::ZERO), None);
    // Each client has a thread here and one of the server, which take turns.
    let cores = thread::available_parallelism().unwrap().get();
    let share = (cores as f64 / 3.0).min(1.0);
    let got = beside / alone / share;
    println!(
        "beside: seconds={} hostile={sent} alone={alone:.1}/s beside={beside:.1}/s share={share:.2} of_share={got:.2}",
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
