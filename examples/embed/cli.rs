//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use demos::{processors, threads};
use embed::model::Kernels;

const MORE: &str = "\
The model is all-MiniLM-L6-v2: `cargo xtask model` fetches it and writes a file for each type. --model takes any other
BERT encoder that the example bert_to_gguf converted.

Without --out, --search and --imatrix, the program prints the first elements of each vector, and the cosine similarities of
up to ten sentences.

Examples:
  embed 'The cat sits on the mat.' 'A dog lies on the rug.'
  embed --file lines.txt --out vectors.npy
  embed --file lines.txt --search 'how do I reset my password'
  embed --file lines.txt --imatrix imatrix.gguf
  embed --check                              compare with PyTorch's vectors

Exit status:
  0  success
  1  a file, a device or a computation failed, or --check found a deviation; see standard error
  2  the command line is invalid";

/// Computes sentence embeddings: vectors that are close if the sentences have similar meanings.
#[derive(Debug, Parser)]
#[command(name = "embed", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Sentences
    #[arg(required_unless_present_any = ["file", "check"])]
    pub(crate) sentences: Vec<String>,

    /// A file with more sentences, one per line
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Write the vectors to a NumPy file, one row per sentence
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Write an importance matrix of these sentences for the example `quantize`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "search"])]
    pub(crate) imatrix: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,

    /// Show the sentences closest to this query
    #[arg(long, value_name = "QUERY")]
    pub(crate) search: Option<String>,

    /// Number of results
    #[arg(long, value_name = "N", default_value_t = 10, requires = "search")]
    pub(crate) top: usize,

    /// Type of the weights
    #[arg(long, value_enum, default_value_t = Weights::F32)]
    pub(crate) dtype: Weights,

    /// Model file, instead of that of --dtype
    #[arg(long, value_name = "FILE", conflicts_with = "dtype")]
    pub(crate) model: Option<PathBuf>,

    /// Devices that hold the layers, consecutive layers each
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "CPU")]
    pub(crate) device: Vec<String>,

    /// CPU threads [default: the number of processors]
    #[arg(long, value_name = "N", default_value_t = processors(), value_parser = threads, hide_default_value = true)]
    pub(crate) threads: NonZeroUsize,

    /// Sentences per batch
    #[arg(long, value_name = "N", default_value = "32")]
    pub(crate) batch: NonZeroUsize,

    /// Kernels that compute the layers
    #[arg(long, value_enum, default_value_t = Kernels::Own)]
    pub(crate) kernels: Kernels,

    /// Compare the vectors of fifty sentences with PyTorch's, for each type of weights; and those of some sentences for each
    /// distribution of the layers over the devices, including a server in this process
    #[arg(long, conflicts_with_all = ["sentences", "file", "out", "search", "imatrix", "model", "dtype"])]
    pub(crate) check: bool,
}

/// The files that `cargo xtask model` writes.
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

    /// The model's path.
    pub(crate) fn path(self) -> PathBuf {
        demos::repository().join(format!("target/model/all-minilm-l6-v2-{}.gguf", self.name()))
    }
}
