//! An engine in its process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::Engine;

pub(crate) struct Running {
    pub(crate) name: String,
    /// Seconds from the start of the process to the first token.
    pub(crate) start: f64,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(engine: &Engine, file: &Path, threads: usize) -> Result<Self> {
        let begin = Instant::now();
        let mut command = Command::new(&engine.program);
        command.arg(file).arg(threads.to_string()).args(&engine.arguments);
        command.env("RAYON_NUM_THREADS", threads.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("can't run {command:?}"))?;
        let requests = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut this = Self { name: engine.name.clone(), start: 0.0, child, requests, answers };
        this.ask("prompt 16")?;
        this.start = begin.elapsed().as_secs_f64();
        Ok(this)
    }

    /// The seconds that a request took.
    pub(crate) fn ask(&mut self, request: &str) -> Result<f64> {
        writeln!(self.requests, "{request}").with_context(|| format!("{} ended", self.name))?;
        self.requests.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        answer.trim().parse().with_context(|| format!("{} gave no answer", self.name))
    }

    /// The most memory that it has had, in MiB; `None` where the system doesn't tell.
    pub(crate) fn peak(&self) -> Result<Option<u64>> {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())) else { return Ok(None) };
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("VmHWM")?;
        Ok(Some(kib.parse::<u64>()? / 1024))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
