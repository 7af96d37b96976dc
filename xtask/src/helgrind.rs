//! `cargo xtask helgrind`: the thread tests under helgrind, which detects data races.
//!
//! Backends use one thread each: helgrind doesn't understand how ggml's threads synchronise, through atomics.

use anyhow::Result;

use crate::workspace::{Workspace, check, host};

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    let target = host()?;
    let mut command = workspace.cargo(&workspace.root);
    command.args(["test", "--target", &target, "--target-dir"]).arg(workspace.root.join("target/helgrind"));
    command.args(["--test", "threads"]);
    if target.starts_with("x86_64") {
        command.env("GGML_SYS_CPU", "x86-64-v3"); // valgrind knows no AVX-512
    }
    let known = workspace.root.join("xtask/helgrind.supp");
    // Fair scheduling, or threads that spin would starve those they wait for.
    let runner =
        format!("valgrind -q --tool=helgrind --fair-sched=yes --error-exitcode=9 --suppressions={}", known.display());
    command.env(format!("CARGO_TARGET_{}_RUNNER", target.replace('-', "_").to_uppercase()), runner);
    command.env("GGML_TEST_THREADS", "1").env("RUST_TEST_THREADS", "1");
    check(&mut command)?;
    println!("helgrind: no error");
    Ok(())
}
