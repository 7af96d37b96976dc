//! Converts a safetensors file to GGUF. The file is mapped, and written tensor by tensor.
//!
//! ```text
//! cargo run --release --features safetensors --example safetensors_to_gguf -- model.safetensors model.gguf
//! cargo run --release --features safetensors --example safetensors_to_gguf -- --help
//! ```

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use demos::Shown;
use demos::output::Output;
use ggml::gguf::{Reader, Writer};

const MORE: &str = "\
Tensors keep their types; the example `quantize` changes them. Types that ggml lacks, such as U8 and BOOL, are errors unless
the tensors are left out.

Examples:
  safetensors_to_gguf model.safetensors model.gguf --architecture bert --rename encoder.layer.=blk. --skip position_ids
  gguf list model.gguf

Exit status:
  0  the file was written
  1  a file can't be read or written, or ggml can't have one of its tensors; see standard error
  2  the command line is invalid";

/// Converts a safetensors file to GGUF.
#[derive(Debug, Parser)]
#[command(name = "safetensors_to_gguf", after_help = MORE, max_term_width = 120)]
struct Cli {
    /// Input file; nothing else may change it meanwhile
    input: PathBuf,

    /// Output file
    output: PathBuf,

    /// Value of `general.architecture`, which programs built on ggml ask for
    #[arg(long, value_name = "NAME")]
    architecture: Option<String>,

    /// Replace a part of each name, in the order in which this is given
    #[arg(long, value_name = "FROM=TO", value_parser = renaming)]
    rename: Vec<(String, String)>,

    /// Leave out tensors whose names contain this text
    #[arg(long, value_name = "PART")]
    skip: Vec<String>,

    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

fn renaming(text: &str) -> Result<(String, String), &'static str> {
    let (from, to) = text.split_once('=').filter(|(from, _)| !from.is_empty()).ok_or("it has to be FROM=TO")?;
    Ok((from.to_owned(), to.to_owned()))
}

impl Cli {
    /// The name that a tensor gets, unless it is left out.
    fn name(&self, stored: &str) -> Option<String> {
        let skipped = self.skip.iter().any(|part| stored.contains(part));
        let renamed = || self.rename.iter().fold(stored.to_owned(), |name, (from, to)| name.replace(from, to));
        (!skipped).then(renamed)
    }
}

fn main() -> ExitCode {
    demos::run(|| run(&Cli::parse(), &mut io::stdout()))
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let output = Output::new(&cli.output, cli.force, "OUTPUT")?;
    let input = cli.input.display().to_string();
    let input = Shown::text(&input);
    let file = File::open(&cli.input).with_context(|| format!("{input}"))?;
    if file.metadata()?.len() == 0 {
        bail!("{input}: the file is empty"); // which can't be mapped
    }
    // SAFETY: the help says that nothing else may change the file meanwhile, and this program does not: the output
    // replaces a file by renaming another one, so even the same file would stay as it is while it is mapped.
    let file = unsafe { memmap2::Mmap::map(&file) }?;
    let reader = Reader::from_safetensors(file, |name| cli.name(name)).with_context(|| format!("{input}"))?;

    let mut writer = Writer::new();
    writer.set_kv(&reader)?;
    if let Some(architecture) = &cli.architecture {
        writer.set("general.architecture", &**architecture)?;
    }
    let (mut tensors, mut bytes) = (0, 0);
    for t in reader.tensors() {
        writer.declare(t.name(), t.dtype(), t.shape())?;
        (tensors, bytes) = (tensors + 1, bytes + t.size());
    }
    writer.write_with(output.path(), |t, to| to.write_all(reader.data(t.name()).map_err(io::Error::other)?))?;
    let output = cli.output.display().to_string();
    writeln!(out, "safetensors_to_gguf: tensors={tensors} bytes={bytes} file={}", Shown::text(&output))?;
    Ok(())
}
