//! An engine of a benchmark: a process that answers each line of its standard input with a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long an engine may take to end, and how often it is looked at.
const ENDING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// A running process, which ends with this.
pub struct Process {
    name: String,
    child: Child,
    /// Until the process is asked to end.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it.
    pub fn start(name: impl Into<String>, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("can't run {command:?}"))?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Self { name: name.into(), child, requests, answers })
    }

    /// Its name, as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The answer to a line.
    pub fn ask(&mut self, request: &str) -> Result<String> {
        let requests = self.requests.as_mut().context("a pipe")?;
        writeln!(requests, "{request}").with_context(|| format!("{} ended", self.name))?;
        requests.flush()?;
        let mut answer = String::new();
        let n = self.answers.read_line(&mut answer)?;
        (n > 0).then_some(answer).with_context(|| format!("{} gave no answer", self.name))
    }

    /// The most memory that it has had, in MiB; `None` where the system doesn't tell.
    pub fn peak(&self) -> Result<Option<u64>> {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())) else { return Ok(None) };
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("VmHWM")?;
        Ok(Some(kib.parse::<u64>()? / 1024))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An engine ends with its input, and ends what it has started. One that doesn't is killed.
        self.requests = None;
        for _ in 0..ENDING.as_millis() / PAUSE.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(PAUSE);
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
