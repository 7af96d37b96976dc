//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const MORE: &str = "\
Types of values: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool str, and arrays of them: u32[] str[] ...

Examples:
  gguf list model.gguf                                     list metadata and tensors
  gguf dump model.gguf                                     print all metadata in full
  gguf dump model.gguf blk.0.attn_q.weight                 print the first elements of a tensor
  gguf get model.gguf general.name                         print one value
  gguf set model.gguf general.name str Ada -o new.gguf     write a copy with another name
  gguf set model.gguf sizes 'u32[]' 1 2 3 --force          change the file in place
  gguf remove model.gguf general.url -o new.gguf

An existing file is replaced only with --force, and a read-only file never. Files are replaced atomically.

Exit status:
  0  success
  1  a file can't be read or written, or has no such key or tensor; see standard error
  2  the command line is invalid";

/// Shows and changes GGUF files.
#[derive(Debug, Parser)]
#[command(name = "gguf", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List tensors and shortened metadata
    List {
        /// The file
        file: PathBuf,
    },
    /// Print all metadata in full, or the elements of a tensor
    Dump {
        /// The file
        file: PathBuf,
        /// The tensor
        tensor: Option<String>,
        /// Elements to print at most; 0 prints all
        #[arg(long, value_name = "N", default_value = "64")]
        limit: usize,
    },
    /// Print the value of a key; an array with one element per line
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
    /// Output file [default: the input file, which needs --force]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
}
