//! The command line.

use std::path::PathBuf;

use clap::Parser;
use demos::digits::{data, model};

const MORE: &str = "\
The images that sched_demo tests with are never trained on. A tenth of the others is not trained on either: it tells after
each epoch how well the network does with images that it does not know. The test images are looked at once, at the end; a
model that gets fewer than 95 % of them right is not written.

The same seed gives the same model on the same machine, however many threads there are.

Examples:
  digits_train --force                      train, and write the model in place of the one that is there
  digits_train --output /tmp/digits.gguf    write it elsewhere

Exit status:
  0  the model was written
  1  a file or a computation failed, or the model was not good enough; standard error says which
  2  the command line was wrong";

/// Trains the network that the scheduler demo classifies digits with, through ggml's own gradients and optimiser.
#[derive(Debug, Parser)]
#[command(name = "digits_train", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Where the model is written
    #[arg(long, value_name = "FILE", default_value = model::DEFAULT_PATH, hide_default_value = true)]
    #[arg(help = "Where the model is written [default: examples/data/digits.gguf of this repository]")]
    pub(crate) output: PathBuf,

    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,

    /// The images
    #[arg(long, value_name = "FILE", default_value = data::DEFAULT_PATH, hide_default_value = true)]
    #[arg(help = "The images [default: examples/data/digits.csv.gz of this repository]")]
    pub(crate) data: PathBuf,

    /// How often each image is trained on
    #[arg(long, value_name = "N", default_value = "60", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) epochs: u16,

    /// What first weights and the order of the images are drawn by
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Threads of the CPU; the network is so small that one is fastest
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: u16,
}
