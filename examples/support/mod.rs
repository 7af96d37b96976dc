//! What the examples share: how a program ends, and on how many threads it may compute.
//!
//! It is no example of its own; the others include it.

#![allow(dead_code, reason = "no program needs all of it")]

pub(crate) mod output;
#[path = "../../src/error/shown.rs"]
pub(crate) mod shown;

use std::fmt::Write as _;
use std::io::{self, ErrorKind, StdoutLock, Write as _};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread;

use anyhow::{Error, Result};
use ggml::Backend;

use shown::Shown;

/// Runs a program, and says on standard error why it failed.
pub(crate) fn run(program: impl FnOnce() -> Result<()>) -> ExitCode {
    // ggml's own lines only where they are asked for: an error carries those that explain it.
    env_logger::init_from_env(env_logger::Env::default().default_filter_or("off"));
    let Err(error) = program() else { return ExitCode::SUCCESS };
    // Nothing is left to be told to if that fails.
    let _written = writeln!(io::stderr(), "error: {}", lines(&message(&error)));
    ExitCode::FAILURE
}

/// An error with its causes, except those whose text it contains already, as errors of `ggml` do.
fn message(error: &Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |message, cause| match message.as_str() {
        "" => cause,
        said if said.contains(&cause) => message,
        said => format!("{said}: {cause}"),
    })
}

/// Text of several lines as a terminal may show it, whatever it is made of.
pub(crate) fn lines(text: &str) -> String {
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        // A string takes all.
        let _written = write!(shown, "{}{end}", Shown::text(line));
    }
    shown
}

/// Names that there are, for a message.
pub(crate) fn names(names: impl Iterator<Item = impl AsRef<str>>) -> String {
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
pub(crate) fn print(program: impl FnOnce(&mut StdoutLock<'_>) -> Result<()>) -> ExitCode {
    run(|| match program(&mut io::stdout().lock()) {
        Err(error) if is_unread(&error) => Ok(()),
        done => done,
    })
}

fn is_unread(error: &Error) -> bool {
    error.root_cause().downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// As many threads as there are processors.
pub(crate) fn processors() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Reads a number of threads that a backend can have.
pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let n = text.parse::<NonZeroUsize>().ok().filter(|n| n.get() <= Backend::MAX_THREADS);
    n.ok_or_else(|| format!("it has to be a whole number from 1 to {}", Backend::MAX_THREADS))
}
