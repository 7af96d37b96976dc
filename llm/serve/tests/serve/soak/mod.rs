//! Many clients for some time, and OpenAI's Python package as a client. `cargo xtask serve-check` runs these
//! for long; else they are short.

mod clients;
mod process;

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use ggml_llm::Architecture;

use crate::server::Server;
use clients::Clients;
use process::Process;

/// The most that the server's memory may grow by in the first half of the time: what allocators keep, and compiled schemas.
const FIRST: u64 = 48 << 20;

/// The most in the second half, in which nothing new comes.
const LATER: u64 = 512 << 10;

/// A number from the environment.
fn number(name: &str, usual: usize) -> usize {
    env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn many_clients_leave_nothing_behind() {
    let (least, at_once) = (number("SERVE_CHECK_CLIENTS", 100), number("SERVE_CHECK_AT_ONCE", 16));
    let time = Duration::from_secs(number("SERVE_CHECK_SECONDS", 2) as u64);
    let usual = ["--ctx", "8192", "--parallel", "16", "--queue", "256", "--batch", "128"];
    let server = Server::start(Architecture::Llama, &usual);
    let mut clients = Clients::new(&server);
    // Until all paths have been taken, and memory was as large as it gets.
    clients.come(&server, Duration::ZERO, 4 * at_once.max(50), at_once);
    let before = Process::settled(&server, None);
    clients.same = 0;
    let start = Instant::now();
    let mut n = clients.come(&server, time / 2, least / 2, at_once);
    let half = Process::settled(&server, Some(&before));
    n += clients.come(&server, time / 2, least / 2, at_once);
    let after = Process::settled(&server, Some(&before));
    println!(
        "serve-check: clients={n} at_once={at_once} seconds={} same_tokens={} memory_before={} memory_half={} \
         memory_after={} threads={} handles={}",
        start.elapsed().as_secs(),
        clients.same,
        before.memory,
        half.memory,
        after.memory,
        after.threads,
        after.handles
    );
    assert!(after.threads <= before.threads, "threads grew from {} to {}", before.threads, after.threads);
    assert!(after.handles <= before.handles, "handles grew from {} to {}", before.handles, after.handles);
    assert!(half.memory <= before.memory + FIRST, "memory grew by more than {FIRST} bytes");
    assert!(after.memory <= half.memory + LATER, "memory grew by more than {LATER} bytes in the second half");
    assert!(clients.same > 0, "no tokens were compared");
}

/// Needs a Python with the package.
#[test]
#[ignore = "cargo xtask serve-check runs it"]
fn openais_client_understands_the_server() {
    let python = env::var_os("SERVE_CHECK_PYTHON").expect("SERVE_CHECK_PYTHON is a Python with the package `openai`");
    let server = Server::start(Architecture::Llama, &["--ctx", "4096"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/soak/openai_client.py");
    let url = format!("http://{}/v1", server.place().1);
    let status = Command::new(python).args([script, &url]).status().unwrap();
    assert!(status.success(), "{status}");
}
