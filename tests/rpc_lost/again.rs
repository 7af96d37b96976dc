//! Tests that run in their own process: this test binary, run again for one test.

use std::env;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Marks the process that runs the test itself.
const INSIDE: &str = "GGML_TEST_RPC_INSIDE";

/// Long enough for a test on a busy machine; only a hang takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `body` in its own process, as the test `name`; returns the process's output to the parent.
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
