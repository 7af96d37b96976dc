//! An engine in its process.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use process::Process;

use crate::Engine;

pub(crate) struct Running {
    pub(crate) process: Process,
    /// Seconds from the start of the process to the first token.
    pub(crate) start: f64,
}

impl Running {
    pub(crate) fn start(engine: &Engine, file: &Path, threads: usize) -> Result<Self> {
        let begin = Instant::now();
        let mut command = Command::new(&engine.program);
        command.arg(file).arg(threads.to_string()).args(&engine.arguments);
        command.env("RAYON_NUM_THREADS", threads.to_string());
        let mut this = Self { process: Process::start(&engine.name, command)?, start: 0.0 };
        this.ask("prompt 16")?;
        this.start = begin.elapsed().as_secs_f64();
        Ok(this)
    }

    /// The seconds that a request took.
    pub(crate) fn ask(&mut self, request: &str) -> Result<f64> {
        let answer = self.process.ask(request)?;
        answer.trim().parse().with_context(|| format!("{} answered {answer:?}", self.process.name()))
    }
}
