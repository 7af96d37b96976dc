//! `cargo xtask serve-check`: the server of language models with OpenAI's Python package, and with many clients for some time.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::llm_bench;
use crate::workspace::{Workspace, check};

/// OpenAI's package, of Python's index.
const OPENAI: &str = "openai==3.57.0";

#[derive(Debug, clap::Args)]
pub(crate) struct ServeCheckArguments {
    /// How long clients come, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Measure tokens per second with 1, 8 and 32 clients instead, beside llama.cpp
    #[arg(long)]
    speed: bool,
    /// Arguments of the benchmark after those of this chore: see `cargo xtask llm-bench -- --help`
    #[arg(last = true, requires = "speed")]
    rest: Vec<OsString>,
    /// Leave out OpenAI's package, which needs Python 3 and a network
    #[arg(long)]
    no_python: bool,
}

pub(crate) fn run(arguments: &ServeCheckArguments) -> Result<()> {
    if arguments.speed {
        return llm_bench::serve(&arguments.rest);
    }
    let workspace = Workspace::find()?;
    let test = |name: &str| {
        let mut command = workspace.cargo(&workspace.root);
        command.args(["test", "--release", "--package", "ggml-llm-serve", "--test", "serve", "--", "--exact", name]);
        command.args(["--include-ignored", "--nocapture"]);
        command
    };
    if !arguments.no_python {
        let python = python(&workspace)?;
        check(test("soak::openais_client_understands_the_server").env("SERVE_CHECK_PYTHON", python))?;
    }
    let mut many = test("soak::many_clients_leave_nothing_behind");
    many.env("SERVE_CHECK_CLIENTS", "1000").env("SERVE_CHECK_AT_ONCE", "64");
    check(many.env("SERVE_CHECK_SECONDS", arguments.seconds.to_string()))
}

/// A Python that has OpenAI's package.
fn python(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.root.join("target/serve-check");
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !python.exists() {
        check(Command::new(if cfg!(windows) { "python" } else { "python3" }).args(["-m", "venv"]).arg(&folder))?;
    }
    check(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", OPENAI]))?;
    Ok(python)
}
