//! Language models for the command line: `ggml-llm --help`.

mod program;

use clap::{Parser, Subcommand};
use program::{bench, chat, complete, info, perplexity};

/// Language models from GGUF files, computed by ggml
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  ggml-llm chat model.gguf --system 'Answer briefly.'
  ggml-llm complete model.gguf 'Once upon a time' --temperature 0.8 --top-p 0.9
  ggml-llm bench model.gguf --threads 4
  ggml-llm chat large.gguf --device CUDA0 --device CPU --split 3,1
  ggml-llm chat large.gguf --rpc 192.168.0.2:50052 --rpc 192.168.0.3:50052")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Talk with a model that has a chat template
    Chat(chat::Arguments),
    /// Continue a text
    Complete(complete::Arguments),
    /// Measure prompts, steps, and several sequences at once
    Bench(bench::Arguments),
    /// Print what a file says about its model
    Info(info::Arguments),
    /// Print the tokens of a text
    Tokens(info::TokensArguments),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Chat(arguments) => chat::run(arguments),
        Command::Complete(arguments) => complete::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Tokens(arguments) => info::tokens(&arguments),
        Command::Perplexity(arguments) => perplexity::run(&arguments),
    }
}
