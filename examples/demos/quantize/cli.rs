//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use demos::mix::Mix;
use ggml::DType;
use ggml::Quantize as _;

const MORE: &str = "\
Tensors stay unchanged if they hold integers or f64, have one dimension (norms, biases), have rows that are not a whole
number of blocks of the new type, or match --keep. A mixture also keeps small matrices that matter, and takes a type with
shorter blocks where rows need it.

An importance matrix is a GGUF file with two tensors for each matrix, as imatrix tools write it: NAME.in_sum2 (for each
column, the sum of the squared activations) and NAME.counts (their number). iq2_xxs, iq2_xs, iq1_s and iq1_m require one.

Examples:
  quantize model.gguf small.gguf --type q8_0
  quantize model.gguf small.gguf --mix q4_K_M
  quantize model.gguf small.gguf --type q4_K --imatrix imatrix.gguf --keep token_embd --keep output

Exit status:
  0  the file was written
  1  a file can't be read or written, or a tensor holds NaN, infinity, or values out of the type's range; see standard
     error
  2  the command line is invalid";

/// Converts the tensors of a GGUF file to another type.
#[derive(Debug, Parser)]
#[command(name = "quantize", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Input file
    pub(crate) input: PathBuf,

    /// Output file
    pub(crate) output: PathBuf,

    /// New type, such as `q8_0`, `q4_K`, `iq4_xs` or `f16`
    #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = target, required_unless_present = "mix")]
    pub(crate) dtype: Option<DType>,

    /// Mixture of types as llama.cpp's quantiser makes it, such as `q4_K_M`: tensors that suffer most get more bits
    #[arg(long, value_name = "MIX", conflicts_with = "dtype")]
    pub(crate) mix: Option<Mix>,

    /// Importance matrix
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,

    /// Keep tensors whose names contain this text
    #[arg(long, value_name = "PART")]
    pub(crate) keep: Vec<String>,

    /// Threads [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// Parses a type that values can be converted to.
fn target(text: &str) -> Result<DType, String> {
    let dtype = DType::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(text));
    dtype.filter(|&t| can_quantize(t)).ok_or_else(|| {
        let names: Vec<_> = DType::ALL.iter().filter(|&&t| can_quantize(t)).map(|t| t.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Whether values can be converted to the type and back.
pub(crate) fn can_quantize(dtype: DType) -> bool {
    let Ok(block) = usize::try_from(dtype.block_size()) else { return false };
    dtype.quantize(&[], block, Some(&vec![1.0; block])).is_ok()
}
