//! Tests that run in a process of their own: this test binary, run again for one of them.

use std::env;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Tells a process that it is the one that a test runs in.
const INSIDE: &str = "GGML_TEST_RPC_INSIDE";

/// Long enough for what a test does on a busy machine. What hangs does so for ever.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `body` in a process of its own, which is the one of test `name`; returns what it printed, outside of that process.
pub(crate) fn alone(name: &str, body: impl FnOnce()) -> Option<Output> {
    if env::var_os(INSIDE).is_some() {
        body();
        return None;
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .env("GGML_NO_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("{name} hangs:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Some(output)
}
