//! The same things again and again: threads, handles and memory are the same at the end as after the first rounds.
//!
//! `cargo test --release --test soak` takes about a minute, a debug build some seconds; `SOAK_SECONDS` says how long each
//! part may take.

#![cfg(test)]
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod local;
mod measure;
#[cfg(feature = "rpc")]
mod remote;

use std::env;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use measure::Use;

/// Tells a child that it is one.
const CHILD: &str = "GGML_TEST_SOAK";

/// Runs an ignored test of this binary in a process of its own, where nothing else runs.
fn alone(name: &str) {
    let status = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        // What is kept for a thread's next allocation would count as allocated.
        .env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{name}: {status}");
}

/// How long a part may take.
fn time() -> Duration {
    let seconds = env::var("SOAK_SECONDS").ok().map(|n| n.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(if cfg!(debug_assertions) { 3 } else { 25 }))
}

/// Rounds until the time is over, the first of which warm up. Fails if more is used at the end than after those.
fn soak(part: &str, mut round: impl FnMut(u64)) {
    assert!(env::var_os(CHILD).is_some(), "only the driver runs this");
    let (started, all) = (Instant::now(), time());
    let mut rounds = 0;
    let mut rounds_until = |end: Duration, least: u64| {
        let from = rounds;
        while rounds - from < least || started.elapsed() < end {
            round(rounds);
            rounds += 1;
        }
    };
    rounds_until(all / 4, 8);
    let before = Use::now();
    rounds_until(all, 16);
    let after = Use::now_as(&before);
    // Not by a macro, whose output the test harness keeps to itself.
    let _shown = writeln!(std::io::stderr(), "soak: rounds={rounds} {} ({part})", before.to(&after));
    after.check(&before, rounds);
}

#[test]
fn local_objects_do_not_leak() {
    alone("local_rounds");
}

#[test]
#[ignore = "another test runs it, in a process of its own"]
fn local_rounds() {
    soak("objects", local::round);
}

#[cfg(feature = "rpc")]
#[test]
fn connections_do_not_leak() {
    alone("connection_rounds");
}

#[cfg(feature = "rpc")]
#[test]
#[ignore = "another test runs it, in a process of its own"]
fn connection_rounds() {
    let mut peers = remote::Peers::new();
    soak("connections", |round| peers.round(round));
}

/// The process of a [`testkit::server::ServerProcess`].
#[cfg(feature = "rpc")]
#[test]
fn server_process() {
    testkit::server::server_process();
}
