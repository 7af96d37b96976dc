//! `cargo xtask llm-check`: language models and tokenizers, by `ggml-llm` and by llama.cpp.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::fetch::pin::Pin;
use crate::workspace::{Workspace, check};
use crate::{interop, text_check};

/// The training steps of the model that is no random numbers.
const STEPS: &str = "100";

#[derive(Debug, clap::Args)]
pub(crate) struct LlmCheckArguments {
    /// Parts of the names of cases, or `random`; all cases, random models, and the tokenizers, if there are none
    cases: Vec<String>,
    /// The number of random models
    #[arg(long, default_value_t = 500)]
    random: usize,
    /// The seed of the first random model; each has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A pinned version of ggml whose llama.cpp to compare with; all without it
    #[arg(long)]
    ggml: Vec<String>,
    /// Leave out the tokenizers, which take as long as all models
    #[arg(long)]
    models: bool,
}

pub(crate) fn run(arguments: &LlmCheckArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let trained = workspace.root.join("target/llm-check.gguf");
    let mut train = workspace.cargo(&workspace.root);
    train.args(["run", "--release", "--example", "generate", "--", "train", "--force", "--steps", STEPS, "--output"]);
    check(train.arg(&trained))?;
    for pin in workspace.chosen_pins(&arguments.ggml)? {
        over(&workspace, &pin, &trained, arguments)?;
    }
    Ok(())
}

/// Compares with the llama.cpp of one version.
#[expect(clippy::print_stdout, reason = "the chore's result")]
fn over(workspace: &Workspace, pin: &Pin, trained: &Path, arguments: &LlmCheckArguments) -> Result<()> {
    let mut models = Command::new(interop::build_over(workspace, pin, "llm/check", "llm-check")?);
    models.arg(trained).args([arguments.random.to_string(), arguments.seed.to_string()]).args(&arguments.cases);
    // llama.cpp rotates the keys and values of quantised caches, which this crate does not.
    let models = result(models.env("LLAMA_ATTN_ROT_DISABLE", "1"), "llm: ")?;
    if arguments.cases.is_empty() && !arguments.models {
        let tokenizers = result(&mut text_check::program(workspace, pin)?, "tokenizer_texts=")?;
        let (logits, costs) = models.split_once(" plans_per_bucket").context("the line has no plans")?;
        println!("{logits} {tokenizers} plans_per_bucket{costs}");
    }
    Ok(())
}

/// Runs a program, shows what it prints, and returns the line that begins so.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
fn result(command: &mut Command, begins: &str) -> Result<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let mut found = None;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line?;
        println!("{line}");
        if line.starts_with(begins) {
            found = Some(line);
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{command:?}: {status}");
    found.with_context(|| format!("{command:?} printed no line that begins with `{begins}`"))
}
