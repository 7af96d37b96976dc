//! `cargo xtask fuzz-gguf`: the test of changed GGUF files, run for longer.

use anyhow::Result;

use crate::workspace::{Workspace, check};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many files to try
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    runs: u64,

    /// What they are drawn by; the same seed gives the same files [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut cargo = workspace.cargo(&workspace.root);
    cargo.args(["test", "--quiet", "--test", "gguf_memory", "fuzz::fuzz", "--", "--exact", "--nocapture"]);
    cargo.env("GGML_FUZZ_RUNS", arguments.runs.to_string());
    if let Some(seed) = arguments.seed {
        cargo.env("GGML_FUZZ_SEED", seed.to_string());
    }
    check(&mut cargo)
}
