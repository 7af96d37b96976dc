//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use demos::threads;
use ggml::DType;

const MORE: &str = "\
The model is small: it learns how documentation looks, and many of its words, in a minute. The same seed gives the same model
on the same machine, however many threads there are. The program `quantize` makes smaller files of a model's.

Examples:
  generate train --output model.gguf --steps 1000
  generate sample --model model.gguf --tokens 300 'The scheduler'
  generate sample --model model.gguf --dtype q8_0 --temperature 0 'A tensor is'
  generate --check                           train a model, and compare all ways to compute it

Exit status:
  0  done
  1  a file or a computation failed, or --check found a difference; standard error says which
  2  the command line was wrong";

/// Trains a small decoder on bytes of text, and lets it write on.
#[derive(Debug, Parser)]
#[command(name = "generate", after_help = MORE, max_term_width = 120)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Train a model, and compare all ways to compute it
    #[arg(long, required = true)]
    pub(crate) check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model
    Train(Train),
    /// Write on behind a prompt
    Sample(Sample),
}

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// Where the model goes
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// What is learned [default: the pages and the documentation comments of this repository]
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Vec<PathBuf>,

    /// Steps of the optimiser, each of 1024 bytes
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) steps: u32,

    /// What first weights and pieces of text are drawn by
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Draw the losses of all steps
    #[arg(long, value_name = "SVG")]
    pub(crate) plot: Option<PathBuf>,

    /// Replace files that are there
    #[arg(long)]
    pub(crate) force: bool,

    /// Threads of the CPU; more than one are faster only where nothing else runs
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(crate) threads: NonZeroUsize,
}

#[derive(Debug, Args)]
pub(crate) struct Sample {
    /// What the model goes on from
    #[arg(default_value = "\n", hide_default_value = true)]
    pub(crate) prompt: String,

    /// The model
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,

    /// How many bytes it writes
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) tokens: usize,

    /// How bold it is; 0 always takes the likeliest byte
    #[arg(long, value_name = "T", default_value = "0.7", value_parser = temperature)]
    pub(crate) temperature: f32,

    /// How many of the likeliest bytes are looked at
    #[arg(long, value_name = "N", default_value = "40")]
    pub(crate) top_k: NonZeroUsize,

    /// What bytes are drawn by
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Turn matrices into a type, such as `f16`, `q8_0` or `q4_0` [default: as they are in the file]
    #[arg(long, value_name = "TYPE", value_parser = target)]
    pub(crate) dtype: Option<DType>,

    /// Type of the cache: `f32` or `f16`
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cache)]
    pub(crate) cache: DType,

    /// Threads of the CPU; the model is so small that one is fastest
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
