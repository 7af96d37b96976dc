//! The command line.

use std::path::PathBuf;

use clap::Parser;
use demos::digits::{data, model};

const MORE: &str = "\
The test images of sched_demo are never trained on. A tenth of the others is held out for validation after each epoch. The
test images are classified once, at the end; a model with an accuracy below 95 % is not written.

The same seed gives the same model on the same machine, with any number of threads.

Examples:
  digits_train --force                      train, and replace the existing model
  digits_train --output /tmp/digits.gguf    write the model to another file

Exit status:
  0  the model was written
  1  a file or a computation failed, or the accuracy is too low; see standard error
  2  the command line is invalid";

/// Trains the digit classifier of the scheduler demo with ggml's gradients and optimiser.
#[derive(Debug, Parser)]
#[command(name = "digits_train", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Output file for the model
    #[arg(long, value_name = "FILE", default_value = model::DEFAULT_PATH, hide_default_value = true)]
    #[arg(help = "Output file for the model [default: examples/data/digits.gguf of this repository]")]
    pub(crate) output: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,

    /// The images
    #[arg(long, value_name = "FILE", default_value = data::DEFAULT_PATH, hide_default_value = true)]
    #[arg(help = "The images [default: examples/data/digits.csv.gz of this repository]")]
    pub(crate) data: PathBuf,

    /// Number of epochs
    #[arg(long, value_name = "N", default_value = "60", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) epochs: u16,

    /// Seed of the initial weights and of the order of images
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// CPU threads; one is fastest for this small network
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: u16,
}
