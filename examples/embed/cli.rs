//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use demos::{processors, threads};
use embed::model::Kernels;

const MORE: &str = "\
The model is all-MiniLM-L6-v2: `cargo xtask model` fetches it, and makes a file of each type. Any other encoder that the
example bert_to_gguf turned into a file will do with --model.

Without --out, --search and --imatrix: the beginning of each vector, and how similar each two of up to ten sentences are.

Examples:
  embed 'The cat sits on the mat.' 'A dog lies on the rug.'
  embed --file lines.txt --out vectors.npy
  embed --file lines.txt --search 'how do I reset my password'
  embed --file lines.txt --imatrix imatrix.gguf
  embed --check                              compare with vectors that PyTorch computed

Exit status:
  0  done
  1  a file, a device or a computation failed, or --check found vectors that are too far off; standard error says which
  2  the command line was wrong";

/// Turns sentences into vectors that are close to each other where the sentences mean the same.
#[derive(Debug, Parser)]
#[command(name = "embed", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// The sentences
    #[arg(required_unless_present_any = ["file", "check"])]
    pub(crate) sentences: Vec<String>,

    /// A file with more of them, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Write the vectors to a file of NumPy's, a row for each sentence
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Write how much each column of each matrix matters for these sentences, which the example `quantize` reads
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "search"])]
    pub(crate) imatrix: Option<PathBuf>,

    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,

    /// Show the sentences that are closest to this one
    #[arg(long, value_name = "QUERY")]
    pub(crate) search: Option<String>,

    /// How many of them
    #[arg(long, value_name = "N", default_value_t = 10, requires = "search")]
    pub(crate) top: usize,

    /// Type of the weights
    #[arg(long, value_enum, default_value_t = Weights::F32)]
    pub(crate) dtype: Weights,

    /// The model's file, instead of the one of --dtype
    #[arg(long, value_name = "FILE", conflicts_with = "dtype")]
    pub(crate) model: Option<PathBuf>,

    /// Devices that hold the layers, each its share of them from the first on
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "CPU")]
    pub(crate) device: Vec<String>,

    /// Threads of the CPU [default: as many as there are processors]
    #[arg(long, value_name = "N", default_value_t = processors(), value_parser = threads, hide_default_value = true)]
    pub(crate) threads: NonZeroUsize,

    /// Sentences that are computed at once
    #[arg(long, value_name = "N", default_value = "32")]
    pub(crate) batch: NonZeroUsize,

    /// What computes the layers
    #[arg(long, value_enum, default_value_t = Kernels::Own)]
    pub(crate) kernels: Kernels,

    /// Compare the vectors of fifty sentences, with weights of each type, with those that PyTorch computed; and those of some
    /// with each split of the layers over the devices there are, of which a server in this process is one
    #[arg(long, conflicts_with_all = ["sentences", "file", "out", "search", "imatrix", "model", "dtype"])]
    pub(crate) check: bool,
}

/// What `cargo xtask model` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weights {
    /// 32 bits
    F32,
    /// 16 bits
    F16,
    /// 8.5 bits
    #[value(name = "q8_0")]
    Q8_0,
    /// 4.5 bits
    #[value(name = "q4_0")]
    Q4_0,
    /// 4.5 bits, with an importance matrix
    #[value(name = "q4_0-imatrix")]
    Q4_0Imatrix,
}

impl Weights {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_0Imatrix => "q4_0-imatrix",
        }
    }

    /// Where the model is.
    pub(crate) fn path(self) -> PathBuf {
        demos::repository().join(format!("target/model/all-minilm-l6-v2-{}.gguf", self.name()))
    }
}
