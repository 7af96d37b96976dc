//! `cargo xtask llm-check`: the logits of made-up language models, by `ggml-llm` and by llama.cpp.

use std::process::Command;

use anyhow::Result;

use crate::interop;
use crate::workspace::{Workspace, check};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Parts of the names of cases; all cases if there are none
    cases: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let program = interop::build(&Workspace::find()?, "llm/check", "llm-check")?;
    // llama.cpp rotates the keys and values of quantised caches, which this crate does not.
    check(Command::new(program).args(&arguments.cases).env("LLAMA_ATTN_ROT_DISABLE", "1"))
}
