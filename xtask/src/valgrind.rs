//! `cargo xtask valgrind`: random programs under memcheck, the only tool here that detects reads of uninitialised
//! memory.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, check, host};

#[derive(Debug, clap::Args)]
pub(crate) struct ValgrindArguments {
    /// How many random programs to run: about ten per second
    #[arg(long, default_value_t = 1_000)]
    programs: u64,
    /// The seed of their run, instead of a fixed and a random one
    #[arg(long)]
    seed: Option<u64>,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &ValgrindArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let target = host()?;
    let output = Command::new("valgrind").arg("--version").output().context("cannot run valgrind: install it")?;
    ensure!(output.status.success(), "valgrind does not run: {}", String::from_utf8_lossy(&output.stderr));
    println!("{}", String::from_utf8_lossy(&output.stdout).trim());

    let mut command = workspace.cargo(&workspace.root);
    command.args(["test", "--release", "--target", &target, "--target-dir"]);
    command.arg(workspace.root.join("target/valgrind")).args(["--test", "abuse", "--", "--nocapture"]);
    if target.starts_with("x86_64") {
        command.env("GGML_SYS_CPU", "x86-64-v3"); // it knows no AVX-512
    }
    command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"); // it stops at what rustc writes there
    // Fair scheduling, or threads that spin would starve those they wait for. Programs leak on purpose.
    let runner = "valgrind -q --error-exitcode=9 --trace-children=yes --fair-sched=yes --leak-check=no";
    command.env(format!("CARGO_TARGET_{}_RUNNER", target.replace('-', "_").to_uppercase()), runner);
    command.env("ABUSE_PROGRAMS", arguments.programs.to_string());
    command.env("TEST_NO_LIMITS", "1"); // without memory for itself, valgrind ends
    if let Some(seed) = arguments.seed {
        command.env("ABUSE_SEED", seed.to_string());
    }
    check(&mut command)?;
    println!("valgrind: {} random programs: no error", arguments.programs);
    Ok(())
}
