//! What the demos and benchmarks share: how a program ends, where it writes, servers, the digits and their network.

#![allow(clippy::missing_errors_doc, reason = "a private crate; an error says what it is")]

pub mod convert;
pub mod digits;
pub mod imatrix;
pub mod loopback;
pub mod mix;
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
use ggml::{Backend, Registry};

pub use ggml::Shown;

/// Runs a program. Prints its error to standard error.
pub fn run(program: impl FnOnce() -> Result<()>) -> ExitCode {
    // ggml's log is off by default: an error contains the lines that explain it.
    env_logger::init_from_env(env_logger::Env::default().default_filter_or("off"));
    // With `dynamic-backends`, there are no devices before.
    let Err(error) = Registry::load_all().map_err(Error::from).and_then(|_| program()) else {
        return ExitCode::SUCCESS;
    };
    // A failure to write to standard error can't be reported.
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

/// Escapes untrusted text for a terminal, line by line.
pub fn lines(text: &str) -> String {
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        // Writing to a string never fails.
        let _written = write!(shown, "{}{end}", Shown::text(line));
    }
    shown
}

/// Existing names, for a message.
pub fn names(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    const MOST: usize = 50;
    let mut names: Vec<_> = names.take(MOST + 1).map(|name| Shown::name(name.as_ref()).to_string()).collect();
    if names.len() > MOST {
        names.truncate(MOST);
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Runs a program whose result is its output. A closed standard output is no error: the reader may stop early, as `head`
/// does.
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

/// The number of processors.
pub fn processors() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Parses a number of threads that a backend accepts.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let n = text.parse::<NonZeroUsize>().ok().filter(|n| n.get() <= Backend::MAX_THREADS);
    n.ok_or_else(|| format!("it has to be a whole number from 1 to {}", Backend::MAX_THREADS))
}
