//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const MORE: &str = "\
Types of values: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool str, and arrays of them: u32[] str[] ...

Examples:
  gguf list model.gguf                                     what is in the file
  gguf dump model.gguf                                     all metadata, in full
  gguf dump model.gguf blk.0.attn_q.weight                 the first numbers of a tensor
  gguf get model.gguf general.name                         a value, and nothing else
  gguf set model.gguf general.name str Ada -o new.gguf     a copy with another name
  gguf set model.gguf sizes 'u32[]' 1 2 3 --force          in place
  gguf remove model.gguf general.url -o new.gguf

A file that is there is only replaced with --force, a read-only one not even so. The new one is written beside its place at first: whatever happens, there is the
old file or the new one, as a whole.

Exit status:
  0  done
  1  a file could not be read or written, or has no such key or tensor; standard error says which
  2  the command line was wrong";

/// Shows and changes GGUF files.
#[derive(Debug, Parser)]
#[command(name = "gguf", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List metadata, shortened, and tensors
    List {
        /// The file
        file: PathBuf,
    },
    /// Print all metadata in full, or the numbers of a tensor
    Dump {
        /// The file
        file: PathBuf,
        /// The tensor
        tensor: Option<String>,
        /// How many numbers to print at most; 0 prints all
        #[arg(long, value_name = "N", default_value = "64")]
        limit: usize,
    },
    /// Print the value of a key; of an array, one value a line
    Get {
        /// The file
        file: PathBuf,
        /// The key
        key: String,
    },
    /// Set the value of a key
    Set {
        /// The file
        file: PathBuf,
        /// The key
        key: String,
        /// The type, such as u32 or str[]
        #[arg(value_name = "TYPE")]
        kind: String,
        /// The value, or the values of an array
        #[arg(value_name = "VALUE", allow_negative_numbers = true)]
        values: Vec<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Remove a key
    Remove {
        /// The file
        file: PathBuf,
        /// The key
        key: String,
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Where the changed file goes [default: in place of the old one, which needs --force]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}
