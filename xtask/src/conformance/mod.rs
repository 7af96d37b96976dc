//! `cargo xtask conformance`: ggml's own tests of operations, on devices written in Rust (`tests/conformance`).

mod listed;
mod reports;
mod suite;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::{Workspace, check};
use listed::Listed;
use reports::Reports;

/// The program's folder, outside of the workspace: it can only be built with the tests.
const CRATE: &str = "tests/conformance";

#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArguments {
    /// The version of ggml, one of those in vendor/ggml.toml
    #[arg(long, value_name = "VERSION")]
    ggml: Option<String>,
    /// Only these operations, by ggml's names, divided by commas. Refusals that are listed and don't occur are ignored then
    #[arg(long, value_name = "OP")]
    filter: Option<String>,
    /// After the first 50 cases of an operation, the device `rebuild` computes one in so many. It is asked about all
    #[arg(long, value_name = "N", default_value_t = 1)]
    compute: usize,
    /// Of what it computes right, the other devices get one case in so many, for each operation
    #[arg(long, value_name = "N", default_value_t = 1)]
    sample: usize,
    /// Processes at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// The Python whose pip fetches the package
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &ConformanceArguments) -> Result<()> {
    let start = Instant::now();
    let workspace = Workspace::find()?;
    let ggml = match &arguments.ggml {
        Some(version) => workspace.pins()?.choose(Some(version)).map_err(anyhow::Error::msg)?.ggml.clone(),
        None => workspace.pin()?.ggml,
    };
    let folder = workspace.root.join(CRATE);
    let listed = Listed::read(&folder.join("refusals.toml"))?;
    let target = workspace.root.join("target");
    let scratch = target.join("conformance");
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let tests = suite::ensure(&folder.join("suite.toml"), &scratch, &arguments.python)?;

    println!("compiling ggml's tests over ggml {ggml}");
    let mut build = workspace.cargo(&folder);
    build.args(["build", "--locked", "--target-dir"]).arg(&target);
    // Nothing is said where nothing was: the variable's change alone would compile ggml again.
    build.envs(arguments.ggml.as_ref().map(|_| ("GGML_SYS_GGML", &ggml)));
    check(build.env("GGML_TESTS", &tests))?;
    let built = start.elapsed().as_secs();

    let jobs = arguments.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get)).max(1);
    let program = target.join("debug/conformance");
    let shards =
        (0..jobs).map(|i| Shard::start(&program, &scratch, (i, jobs), arguments)).collect::<Result<Vec<_>>>()?;
    let mut reports = Reports::default();
    for ended in shards.into_iter().map(Shard::end).collect::<Vec<_>>() {
        reports.add(ended?).context("the program and this chore disagree about reports")?;
    }

    let judged = listed.judge(&ggml, &reports, arguments.filter.is_none());
    for line in reports.lines().chain(judged.notes) {
        println!("{line}");
    }
    println!("built in {built} s, run in {} s", start.elapsed().as_secs() - built);
    println!("{}", reports.summary(judged.listed, judged.unlisted));
    let wrong: Vec<_> = reports.wrong(arguments.filter.is_none()).into_iter().chain(judged.wrong).collect();
    ensure!(wrong.is_empty(), "ggml's tests of operations don't pass:\n{}", wrong.join("\n"));
    Ok(())
}

/// A process that runs some of the cases.
struct Shard {
    process: Child,
    report: PathBuf,
}

impl Shard {
    fn start(program: &Path, scratch: &Path, (i, n): (usize, usize), arguments: &ConformanceArguments) -> Result<Self> {
        let report = scratch.join(format!("{i}.json"));
        // That of an earlier run.
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let mut command = Command::new(program);
        let ConformanceArguments { compute, sample, .. } = arguments;
        for (option, value) in
            [("shard", format!("{i}/{n}")), ("compute", compute.to_string()), ("sample", sample.to_string())]
        {
            command.args([format!("--{option}"), value]);
        }
        command.arg("--report").arg(&report).stdin(Stdio::null());
        if let Some(filter) = &arguments.filter {
            command.args(["--filter", filter]);
        }
        let process = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self { process, report })
    }

    /// Waits, and reads what it reports.
    fn end(mut self) -> Result<serde_json::Value> {
        let status = self.process.wait()?;
        if !status.success() {
            let case = fs::read_to_string(self.report.with_extension("case")).unwrap_or_default();
            bail!("the tests ended with {status} in {}", case.trim());
        }
        let text =
            fs::read_to_string(&self.report).with_context(|| format!("there is no {}", self.report.display()))?;
        Ok(serde_json::from_str(&text)?)
    }
}
