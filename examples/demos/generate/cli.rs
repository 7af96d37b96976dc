//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use demos::threads;
use ggml::DType;

/// The temperature at which answers read best.
pub(crate) const TEMPERATURE: f32 = 0.3;

const MORE: &str = "\
The model has a million parameters, and learns for minutes: it knows this repository's glossary and its page of questions, and
nothing else. It answers single questions. The same seed gives the same model on the same machine, with any number of threads.
The example `quantize` makes model files smaller.

Examples:
  generate train --output model.gguf
  generate sample --model model.gguf 'Question: What is a tensor?'
  generate sample --model model.gguf --dtype q8_0 --temperature 0 'Question: What is a view?'
  generate --check                           train a model, and compare all ways of computing it

Exit status:
  0  success
  1  a file or a computation failed, or --check found a difference; see standard error
  2  the command line is invalid";

/// Trains a small decoder on a text, and generates text.
#[derive(Debug, Parser)]
#[command(name = "generate", after_help = MORE, max_term_width = 120)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Train a model, and compare all ways of computing it
    #[arg(long, required = true)]
    pub(crate) check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model
    Train(Train),
    /// Continue a prompt
    Sample(Sample),
}

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// Output file for the model
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Training text [default: questions and answers of this repository's pages, and its documentation comments]
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Vec<PathBuf>,

    /// Optimiser steps of 512 tokens each
    #[arg(long, value_name = "N", default_value = "1400", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) steps: u32,

    /// Seed of the initial weights and of the order of the text
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Plot the loss of each step
    #[arg(long, value_name = "SVG")]
    pub(crate) plot: Option<PathBuf>,

    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,

    /// CPU threads [default: one for each processor]
    #[arg(long, value_name = "N", default_value_t = demos::processors(), hide_default_value = true, value_parser = threads)]
    pub(crate) threads: NonZeroUsize,
}

#[derive(Debug, Args)]
pub(crate) struct Sample {
    /// Prompt
    #[arg(default_value = "Question:")]
    pub(crate) prompt: String,

    /// Model file
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,

    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) tokens: usize,

    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = TEMPERATURE, value_parser = temperature)]
    pub(crate) temperature: f32,

    /// Number of most likely tokens to sample from
    #[arg(long, value_name = "N", default_value = "40")]
    pub(crate) top_k: NonZeroUsize,

    /// Seed of the sampler
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Convert matrices to a type, such as `f16`, `q8_0` or `q4_0` [default: the type in the file]
    #[arg(long, value_name = "TYPE", value_parser = target)]
    pub(crate) dtype: Option<DType>,

    /// Type of the KV cache: `f32` or `f16`
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cache)]
    pub(crate) cache: DType,

    /// CPU threads; one is fastest for this small model
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(crate) threads: NonZeroUsize,
}

fn temperature(text: &str) -> Result<f32, String> {
    let t = text.parse::<f32>().ok().filter(|t| t.is_finite() && *t >= 0.0);
    t.ok_or_else(|| "it has to be a number that is not below 0".to_owned())
}

/// A type of a matrix that a model can be multiplied with.
fn target(text: &str) -> Result<DType, String> {
    one_of(text, |t| t.is_quantized() && t.block_size() == 32 || matches!(t, DType::F32 | DType::F16 | DType::BF16))
}

fn cache(text: &str) -> Result<DType, String> {
    one_of(text, |t| matches!(t, DType::F32 | DType::F16))
}

fn one_of(text: &str, fits: impl Fn(DType) -> bool) -> Result<DType, String> {
    let types = || DType::ALL.iter().copied().filter(|&t| fits(t) && !matches!(t, DType::Q8_1));
    types().find(|t| t.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let names: Vec<_> = types().map(DType::name).collect();
        format!("there are {}", names.join(", "))
    })
}
