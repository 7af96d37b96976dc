//! `cargo xtask asan`: the tests and random programs, with ggml's C and C++ under `AddressSanitizer`.
//!
//! Rust code is not instrumented, which needs a nightly compiler; but the sanitizer replaces `malloc`, so it detects C
//! code that leaves the bounds of a Rust allocation.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, check, host};

/// Tests that start rustc, which is not ours to check, those of Vulkan, whose drivers are not either, those
/// that leave a process less address space than the sanitizer takes, and one that measures memory.
const LEFT_OUT: &[&str] = &["interrupted", "rpc_fuzz", "rpc_lost", "soak", "ui", "vulkan"];

/// A test of random programs on meta devices. ggml reserves 386 MB for each and hardly uses it, but the sanitizer marks
/// all of it: the test did not finish in 15 minutes. Neighbouring tests cover the same operations one by one.
const TOO_LARGE: &str = "meta_random_programs_equal_one_device_or_are_refused";

/// Tests among others that leave a process less address space than the sanitizer takes.
const LIMITED: &str = "limits::";

#[derive(Debug, clap::Args)]
pub(crate) struct AsanArguments {
    /// How many random programs to run
    #[arg(long, default_value_t = 20_000)]
    programs: u64,
    /// The seed of their run, instead of a fixed and a random one
    #[arg(long)]
    seed: Option<u64>,
    /// Instead, send so many sequences of requests to an RPC server under the sanitizer
    #[arg(long, value_name = "N", conflicts_with_all = ["programs", "programs_only"])]
    fuzz_rpc: Option<u64>,
    /// Run the programs only, not the other tests
    #[arg(long)]
    programs_only: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &AsanArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let target = host()?;
    ensure!(
        target.ends_with("linux-gnu"),
        "this needs GCC's libasan and LD_PRELOAD, on Linux with glibc, not {target}"
    );
    let library = libasan()?;
    if let Some(n) = arguments.fuzz_rpc {
        // What is freed is kept for a while, which the test would take for a leak.
        let mut command = cargo(&workspace, &target, &library, "detect_leaks=0:quarantine_size_mb=16");
        command.args(["--test", "rpc_fuzz", "server_survives_hostile_clients", "--", "--nocapture"]);
        command.env("GGML_FUZZ_RUNS", n.to_string());
        if let Some(seed) = arguments.seed {
            command.env("GGML_FUZZ_SEED", seed.to_string());
        }
        check(&mut command)?;
        println!("asan: {n} sequences of requests: no error");
        return Ok(());
    }
    if !arguments.programs_only {
        let mut command = cargo(&workspace, &target, &library, "detect_leaks=0");
        command.args(["--no-fail-fast", "--lib"]);
        for name in tests(&workspace.root)? {
            command.args(["--test", &name]);
        }
        command.args(["--", "--skip", TOO_LARGE, "--skip", LIMITED]);
        println!(
            "all tests except {LEFT_OUT:?}, {TOO_LARGE}, {LIMITED} and random programs; leaks are not looked for, as some \
             leak on purpose"
        );
        check(&mut command)?;
    }
    let mut command = cargo(&workspace, &target, &library, "detect_leaks=1");
    command.args(["--test", "abuse", "--", "--nocapture"]);
    command.env("ABUSE_NO_LEAKS", "1").env("ABUSE_PROGRAMS", arguments.programs.to_string());
    if let Some(seed) = arguments.seed {
        command.env("ABUSE_SEED", seed.to_string());
    }
    println!("{} random programs, leaks looked for", arguments.programs);
    check(&mut command)?;
    println!(
        "asan: {}{} random programs: no error and no leak",
        if arguments.programs_only { "" } else { "all tests, " },
        arguments.programs
    );
    Ok(())
}

/// GCC's runtime library, which must be loaded first in a process.
fn libasan() -> Result<String> {
    let output =
        Command::new("gcc").arg("-print-file-name=libasan.so").output().context("cannot run gcc: install it")?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(Path::new(&path).is_absolute(), "gcc has no libasan.so: install its AddressSanitizer runtime");
    Ok(path)
}

/// `cargo test` with instrumented C.
fn cargo(workspace: &Workspace, target: &str, library: &str, leaks: &str) -> Command {
    let mut command = workspace.cargo(&workspace.root);
    command.args(["test", "-p", "libggml", "--features", "ndarray,serde,safetensors", "--release", "--target", target]);
    command.arg("--target-dir").arg(workspace.root.join("target/asan"));
    let suffix = target.replace('-', "_");
    for flags in ["CFLAGS", "CXXFLAGS"] {
        command.env(format!("{flags}_{suffix}"), "-fsanitize=address -fno-omit-frame-pointer -g1");
    }
    // The runtime belongs to GCC.
    command.env(format!("CC_{suffix}"), "gcc").env(format!("CXX_{suffix}"), "g++");
    command.env("RUSTFLAGS", "-Clinker=gcc -Clink-arg=-Wl,--no-as-needed -Clink-arg=-lasan");
    // Tests pass sizes beyond any memory to builders and expect an error. The test threads have small stacks.
    let options = format!("allocator_may_return_null=1:{leaks}:detect_stack_use_after_return=0");
    let known = workspace.root.join("xtask/lsan.supp");
    let leaks = format!("suppressions={}:print_suppressions=0", known.display());
    command.env("TEST_NO_LIMITS", "1"); // without memory for itself, a program under the sanitizer ends
    let runner = format!("env LD_PRELOAD={library} ASAN_OPTIONS={options} LSAN_OPTIONS={leaks}");
    command.env(format!("CARGO_TARGET_{}_RUNNER", suffix.to_uppercase()), runner);
    command
}

/// The integration tests that run under the sanitizer.
fn tests(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("tests"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let is_test = path.join("main.rs").is_file() || path.extension().is_some_and(|e| e == "rs");
        if is_test && name != "abuse" && !LEFT_OUT.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
