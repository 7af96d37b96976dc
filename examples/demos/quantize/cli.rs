//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use ggml::DType;

const MORE: &str = "\
Left as they are: tensors of integers and of f64, tensors with one dimension (norms, biases), those whose rows are no whole
number of blocks of the new type, and those that --keep names.

An importance matrix says how much each column of a matrix matters: a GGUF file with a tensor NAME.in_sum2 (sums of squares
of what the columns are multiplied with) and NAME.counts (how many there were) for each matrix, as imatrix tools write it.
iq2_xxs, iq2_xs, iq1_s and iq1_m can't do without.

Examples:
  quantize model.gguf small.gguf --type q8_0
  quantize model.gguf small.gguf --type q4_K --imatrix imatrix.gguf --keep token_embd --keep output

Exit status:
  0  the file was written
  1  a file could not be read or written, or a tensor holds NaNs, infinities, or numbers that the type can't hold; standard
     error says which
  2  the command line was wrong";

/// Turns the tensors of a GGUF file into another type.
#[derive(Debug, Parser)]
#[command(name = "quantize", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// The file
    pub(crate) input: PathBuf,

    /// Where the result goes
    pub(crate) output: PathBuf,

    /// The new type, such as `q8_0`, `q4_K`, `iq4_xs` or `f16`
    #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = target)]
    pub(crate) dtype: DType,

    /// How much each column matters
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,

    /// Leave tensors whose names contain this
    #[arg(long, value_name = "PART")]
    pub(crate) keep: Vec<String>,

    /// Threads [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

/// A type that numbers can be turned into.
fn target(text: &str) -> Result<DType, String> {
    let dtype = DType::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(text));
    dtype.filter(|&t| can_quantize(t)).ok_or_else(|| {
        let names: Vec<_> = DType::ALL.iter().filter(|&&t| can_quantize(t)).map(|t| t.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Whether numbers can be turned into the type, and back.
pub(crate) fn can_quantize(dtype: DType) -> bool {
    let Ok(block) = usize::try_from(dtype.block_size()) else { return false };
    dtype.quantize(&[], block, Some(&vec![1.0; block])).is_ok()
}
