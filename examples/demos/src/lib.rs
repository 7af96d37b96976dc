//! What the demos and benchmarks share: how a program ends, where it writes, servers, the digits and their network.

#![allow(clippy::missing_errors_doc, reason = "a private crate; an error says what it is")]

pub mod convert;
pub mod digits;
pub mod imatrix;
pub mod loopback;
pub mod output;
#[cfg(feature = "rpc")]
pub mod servers;

use std::fmt::Write as _;
use std::io::{self, ErrorKind, StdoutLock, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Error, Result};
use ggml::Backend;

pub use ggml::Shown;

/// Runs a program, and says on standard error why it failed.
pub fn run(program: impl FnOnce() -> Result<()>) -> ExitCode {
    // ggml's own lines only where they are asked for: an error carries those that explain it.
    env_logger::init_from_env(env_logger::Env::default().default_filter_or("off"));
    let Err(error) = program() else { return ExitCode::SUCCESS };
    // Nothing is left to be told to if that fails.
    let _written = writeln!(io::stderr(), "error: {}", lines(&format!("{error:#}")));
    ExitCode::FAILURE
}

/// Text of several lines as a terminal may show it, whatever it is made of.
pub fn lines(text: &str) -> String {
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        // A string takes all.
        let _written = write!(shown, "{}{end}", Shown::text(line));
    }
    shown
}

/// Names that there are, for a message.
pub fn names(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    const MOST: usize = 50;
    let mut names: Vec<_> = names.take(MOST + 1).map(|name| Shown::name(name.as_ref()).to_string()).collect();
    if names.len() > MOST {
        names.truncate(MOST);
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Runs a program that is there for what it prints, and done where nobody reads that: whoever does may stop when they have
/// seen enough, as `head` does.
pub fn print(program: impl FnOnce(&mut StdoutLock<'_>) -> Result<()>) -> ExitCode {
    run(|| match program(&mut io::stdout().lock()) {
        Err(error) if is_unread(&error) => Ok(()),
        done => done,
    })
}

fn is_unread(error: &Error) -> bool {
    error.root_cause().downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// The folder of this repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."))
}

/// As many threads as there are processors.
pub fn processors() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Reads a number of threads that a backend can have.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let n = text.parse::<NonZeroUsize>().ok().filter(|n| n.get() <= Backend::MAX_THREADS);
    n.ok_or_else(|| format!("it has to be a whole number from 1 to {}", Backend::MAX_THREADS))
}
