//! `cargo xtask fuzz-gguf` and `cargo xtask fuzz-rpc`: long runs of the tests with random input.

use anyhow::{Result, ensure};

use crate::workspace::{Workspace, check};

#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArguments {
    /// How many files or sequences of requests to try [default: 1000000 files, 50000 sequences]
    #[arg(long, alias = "requests", value_name = "N")]
    runs: Option<u64>,

    /// Instead, measure a client that does nothing wrong for so many seconds alone, and as many beside two hostile ones
    #[arg(long, value_name = "SECONDS", conflicts_with = "runs")]
    beside: Option<u64>,

    /// The seed of the input [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// A test target, the test to run, and the default number of runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fuzz {
    target: &'static str,
    test: &'static str,
    runs: u64,
}

pub(crate) const GGUF: Fuzz = Fuzz { target: "gguf_memory", test: "fuzz::reader_fuzz", runs: 1_000_000 };
pub(crate) const RPC: Fuzz = Fuzz { target: "rpc_fuzz", test: "server_survives_hostile_clients", runs: 50_000 };

pub(crate) fn run(fuzz: Fuzz, arguments: &FuzzArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut cargo = workspace.cargo(&workspace.root);
    let test = if arguments.beside.is_some() { "beside_two_hostile" } else { fuzz.test };
    cargo.args(["test", "--release", "--quiet", "--test", fuzz.target, test, "--", "--nocapture"]);
    cargo.env("GGML_FUZZ_RUNS", arguments.runs.unwrap_or(fuzz.runs).to_string());
    if let Some(seconds) = arguments.beside {
        ensure!(fuzz.target == RPC.target, "only servers have clients");
        cargo.env("GGML_FUZZ_BESIDE", seconds.to_string());
    }
    if let Some(seed) = arguments.seed {
        cargo.env("GGML_FUZZ_SEED", seed.to_string());
    }
    check(&mut cargo)
}
