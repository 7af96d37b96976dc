//! `cargo xtask helgrind`: the tests of threads under helgrind, which sees memory that two threads use without a lock.
//!
//! Each backend computes on one thread: how ggml's threads wait for each other, by atomic numbers, is beyond it.

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
    // Threads take turns, or those that wait would spin while the others stand still.
    let runner =
        format!("valgrind -q --tool=helgrind --fair-sched=yes --error-exitcode=9 --suppressions={}", known.display());
    command.env(format!("CARGO_TARGET_{}_RUNNER", target.replace('-', "_").to_uppercase()), runner);
    command.env("GGML_TEST_THREADS", "1").env("RUST_TEST_THREADS", "1");
    check(&mut command)?;
    println!("helgrind: no error");
    Ok(())
}
