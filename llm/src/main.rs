//! Language models for the command line: `ggml-llm --help`.

mod program;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ggml::Registry;
use program::{bench, chat, complete, embed, info, perplexity, serve};

/// Language models from GGUF files, computed by ggml
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  ggml-llm chat model.gguf --system 'Answer briefly.'
  ggml-llm complete model.gguf 'Once upon a time' --temperature 0.8 --top-p 0.9
  ggml-llm complete model.gguf 'A pet as JSON: ' --json-schema pet.json
  ggml-llm embed model.gguf --lines texts.txt
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
    Chat(chat::ChatArguments),
    /// Continue a text
    Complete(complete::CompleteArguments),
    /// Print embeddings of texts
    Embed(embed::EmbedArguments),
    /// Measure prompts, steps, and several sequences at once
    Bench(bench::BenchArguments),
    /// Print what a file says about its model
    Info(info::InfoArguments),
    /// Print the tokens of a text
    Tokens(info::TokensArguments),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArguments),
    /// Serve a model over HTTP, with OpenAI's API: a program of its own, `cargo build -p ggml-llm-serve`
    #[command(disable_help_flag = true)]
    Serve(serve::ServeArguments),
}

#[expect(clippy::print_stderr, reason = "the program's output")]
fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has enough of it.
        Err(error) if error.chain().any(is_closed_pipe) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", program::printable(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(|error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> anyhow::Result<()> {
    Registry::load_all()?; // with `dynamic-backends`, there are no devices before
    match command {
        Command::Chat(arguments) => chat::run(arguments),
        Command::Complete(arguments) => complete::run(arguments),
        Command::Embed(arguments) => embed::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Tokens(arguments) => info::tokens(&arguments),
        Command::Perplexity(arguments) => perplexity::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
    }
}
