//! JSON schemas of clients. Compiling one that is made for it may take any time, memory or stack, so each is tried first in a
//! process of its own, which has little of them.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ggml_llm::constrain::{Constraint, Grammar, Grammars, MAX_GRAMMAR};
use ggml_llm::text::Tokenizer;
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// The argument that makes this program the process that tries a schema.
pub(crate) const TRY: &str = "try-json-schema";

/// How long that may take. Others may use the processors, so its own time is limited, too.
const TRY_TIME: Duration = Duration::from_secs(10);
#[cfg(unix)]
const TRY_SECONDS: u64 = 2;
#[cfg(unix)]
const TRY_MEMORY: u64 = 768 << 20;
/// The server's threads have more: see `main.rs`.
const TRY_STACK: usize = 4 << 20;

/// How many requests wait for their schema at once.
const WAITING: usize = 32;

/// How many compiled schemas are kept.
const KEPT: usize = 16;

/// Compiles schemas, one after the other.
#[derive(Debug)]
pub(crate) struct Schemas {
    grammars: Grammars,
    waiting: Semaphore,
    turn: Semaphore,
    /// The latest at the end.
    kept: Mutex<VecDeque<(Grammar, Constraint)>>,
}

impl Schemas {
    pub(crate) fn new(tokenizer: &Tokenizer) -> Result<Self> {
        let (waiting, turn) = (Semaphore::new(WAITING), Semaphore::new(1));
        Ok(Self { grammars: Grammars::new(tokenizer)?, waiting, turn, kept: Mutex::default() })
    }

    /// The constraint of a grammar, at its beginning.
    pub(crate) async fn compile(self: &Arc<Self>, grammar: Grammar) -> Result<Constraint, Failure> {
        if let Some(known) = self.known(&grammar) {
            return Ok(known);
        }
        let many = u16::try_from(WAITING).unwrap_or(u16::MAX);
        let _place = self.waiting.try_acquire().map_err(|_| Failure::busy(many))?;
        let _turn = self.turn.acquire().await.map_err(|_| Failure::gone())?;
        if let Some(known) = self.known(&grammar) {
            return Ok(known);
        }
        let all = Arc::clone(self);
        let compiled = tokio::task::spawn_blocking(move || {
            if let Grammar::JsonSchema(schema) = &grammar {
                ensure!(schema.len() <= MAX_GRAMMAR, "it has {} bytes; {MAX_GRAMMAR} may be", schema.len());
                try_apart(schema)?;
            }
            let constraint = all.grammars.compile(&grammar)?;
            if let Ok(mut kept) = all.kept.lock() {
                if kept.len() == KEPT {
                    kept.pop_front();
                }
                kept.push_back((grammar, constraint.clone()));
            }
            Ok(constraint)
        });
        let compiled = compiled.await.map_err(|e| Failure::server(e.to_string()))?;
        compiled.map_err(|e| Failure::field("response_format", format!("the JSON schema can't be used: {e:#}")))
    }

    fn known(&self, grammar: &Grammar) -> Option<Constraint> {
        let kept = self.kept.lock().ok()?;
        kept.iter().find(|(known, _)| known == grammar).map(|(_, constraint)| constraint.clone())
    }
}

/// Whether the schema can be compiled, found out by another process.
fn try_apart(schema: &str) -> Result<()> {
    let own = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
    let mut command = Command::new(own);
    command.arg(TRY).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("there is no process to try it")?;
    let start = Instant::now();
    // One that ends early reads less.
    let _read = child.stdin.take().is_some_and(|mut input| input.write_all(schema.as_bytes()).is_ok());
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > TRY_TIME => {
                child.kill()?;
                break child.wait()?;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        output.take(1000).read_to_string(&mut said)?;
    }
    ensure!(said.is_empty(), "{}", said.trim_end());
    ensure!(status.success(), "it is too complex");
    Ok(())
}

/// The process that tries a schema: says what is wrong with it.
#[expect(clippy::print_stdout, reason = "what the server reads")]
pub(crate) fn try_one() -> ExitCode {
    let thread = std::thread::Builder::new().stack_size(TRY_STACK).spawn(|| {
        #[cfg(unix)]
        {
            rlimit::Resource::CPU.set(TRY_SECONDS, TRY_SECONDS)?;
            rlimit::Resource::AS.set(TRY_MEMORY, TRY_MEMORY)?;
            rlimit::Resource::CORE.set(0, 0)?;
        }
        let mut schema = String::new();
        std::io::stdin().take(2 * MAX_GRAMMAR as u64).read_to_string(&mut schema)?;
        walk(&Grammars::of_bytes()?.compile(&Grammar::JsonSchema(schema))?)
    });
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(error))) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
        _ => ExitCode::FAILURE,
    }
}

/// Goes some way into the grammar, at random, as what the server does for each token may be hard, too.
fn walk(constraint: &Constraint) -> Result<()> {
    for seed in 0..4 {
        let (mut rng, mut constraint) = (fastrand::Rng::with_seed(seed), constraint.clone());
        for _ in 0..100 {
            let logits: Vec<f32> = (0..257).map(|_| rng.f32()).collect();
            let masked = constraint.masked(&logits)?.iter().zip(0..);
            let Some((_, best)) = masked.max_by(|a, b| a.0.total_cmp(b.0)) else { break };
            constraint.accept(best)?;
            if constraint.is_complete() {
                break;
            }
        }
    }
    Ok(())
}
