//! `cargo xtask text-check`: the tokenizers of `llm` beside llama.cpp's, on random texts.

use std::process::Command;

use anyhow::Result;

use crate::interop;
use crate::workspace::{Workspace, check};

/// The crate, outside of the workspace: it can only be built with an installed ggml.
const CRATE: &str = "llm/tests/text_llama";

#[derive(Debug, clap::Args)]
pub(crate) struct TextCheckArguments {
    /// The number of texts
    #[arg(long, default_value_t = 100_000)]
    texts: u64,
    /// The seed of texts and vocabularies
    #[arg(long, default_value_t = 17)]
    seed: u64,
}

pub(crate) fn run(arguments: &TextCheckArguments) -> Result<()> {
    check(program(&Workspace::find()?)?.args([arguments.texts, arguments.seed].map(|n| n.to_string())))
}

/// Builds the program, whose arguments are those of the chore.
pub(crate) fn program(workspace: &Workspace) -> Result<Command> {
    Ok(Command::new(interop::build(workspace, CRATE, "text_llama")?))
}
