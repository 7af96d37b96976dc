//! `cargo xtask text-check`: the tokenizers of `llm` beside llama.cpp's, on random texts.

use std::process::Command;

use anyhow::Result;

use crate::fetch::pin::Pin;
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
    /// A pinned version of ggml whose llama.cpp to compare with; all without it
    #[arg(long)]
    ggml: Vec<String>,
}

pub(crate) fn run(arguments: &TextCheckArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    for pin in workspace.chosen_pins(&arguments.ggml)? {
        check(program(&workspace, &pin)?.args([arguments.texts, arguments.seed].map(|n| n.to_string())))?;
    }
    Ok(())
}

/// Builds the program, whose arguments are those of the chore, with the llama.cpp of a version.
pub(crate) fn program(workspace: &Workspace, pin: &Pin) -> Result<Command> {
    Ok(Command::new(interop::build_over(workspace, pin, CRATE, "text_llama")?))
}
