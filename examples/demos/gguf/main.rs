//! Shows and changes GGUF files.
//!
//! ```text
//! cargo run --release --example gguf -- list examples/data/digits.gguf
//! cargo run --release --example gguf -- --help
//! ```

mod cli;
#[cfg(test)]
mod tests;
mod value;

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use comfy_table::{CellAlignment, Table, presets};
use demos::Shown;
use demos::output::Output;
use ggml::Quantize as _;
use ggml::gguf::{Reader, Writer};
use indicatif::{ProgressBar, ProgressStyle};

use cli::{Cli, Command, Target};

/// Characters per value in a list.
const WIDTH: usize = 80;
/// Elements per line.
const COLUMNS: usize = 8;

fn main() -> ExitCode {
    demos::print(|out| run(&Cli::parse(), out))
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<()> {
    match &cli.command {
        Command::List { file } => list(&Reader::open(file)?, out),
        Command::Dump { file, tensor: None, .. } => {
            for (key, value) in Reader::open(file)?.key_values() {
                writeln!(out, "{}: {} = {}", Shown::name(key), value::kind(value), value::line(value, usize::MAX))?;
            }
            Ok(())
        }
        Command::Dump { file, tensor: Some(tensor), limit } => dump(&mut Reader::open(file)?, tensor, *limit, out),
        Command::Get { file, key } => {
            let reader = Reader::open(file)?;
            let value = reader.metadata(key).with_context(|| missing(&reader, key))?;
            // Escapes are for terminals only.
            let terminal = io::stdout().is_terminal();
            let shown = |text: String| if terminal { demos::lines(&text) } else { text };
            value::texts(value).try_for_each(|text| writeln!(out, "{}", shown(text)))?;
            Ok(())
        }
        Command::Set { file, key, kind, values, target } => {
            let value = value::parse(kind, values)?;
            rewrite(file, target, out, |writer, _| {
                writer.set(key, value)?;
                Ok(())
            })
        }
        Command::Remove { file, key, target } => rewrite(file, target, out, |writer, reader| {
            writer.remove(key).with_context(|| missing(reader, key)).map(drop)
        }),
    }
}

fn missing(reader: &Reader<File>, key: &str) -> String {
    format!(
        "there is no key `{}`; there are {}",
        Shown::name(key),
        demos::names(reader.key_values().map(|(key, _)| key))
    )
}

fn list(reader: &Reader<File>, out: &mut impl Write) -> Result<()> {
    let (keys, tensors) = (reader.key_values().count(), reader.tensors().count());
    let bytes: u64 = reader.tensors().map(|t| t.size() as u64).sum();
    let (version, alignment) = (reader.version(), reader.alignment());
    writeln!(out, "version {version}, {keys} keys, {tensors} tensors of {bytes} bytes, aligned to {alignment}")?;
    let mut table = table(&["key", "type", "value"]);
    for (key, value) in reader.key_values() {
        table.add_row([Shown::name(key).to_string(), value::kind(value), value::line(value, WIDTH)]);
    }
    writeln!(out, "{table}")?;
    let mut table = self::table(&["tensor", "type", "shape", "offset", "bytes"]);
    for t in reader.tensors() {
        let (name, shape) = (Shown::name(t.name()).to_string(), t.shape().to_string());
        table.add_row([&name, t.dtype().name(), &shape, &t.offset().to_string(), &t.size().to_string()]);
    }
    for i in [3, 4] {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "{table}")?;
    Ok(())
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}

fn dump(reader: &mut Reader<File>, name: &str, limit: usize, out: &mut impl Write) -> Result<()> {
    let (dtype, shape) = reader.tensor(name).map(|t| (t.dtype(), t.shape()))?;
    writeln!(out, "{}: {dtype} {shape}", Shown::name(name))?;
    let numbers = dtype.dequantize(&reader.read(name)?)?;
    let shown = if limit == 0 { numbers.len() } else { limit.min(numbers.len()) };
    let row = usize::try_from(shape.ne()[0])?;
    // Each row starts a new line.
    for part in numbers.get(..shown).unwrap_or_default().chunks(row).flat_map(|row| row.chunks(COLUMNS)) {
        let line: Vec<_> = part.iter().map(|x| format!("{x:12.6e}")).collect();
        writeln!(out, "{}", line.join(" "))?;
    }
    if shown < numbers.len() {
        writeln!(out, "… {} more: --limit 0 prints all", numbers.len() - shown)?;
    }
    Ok(())
}

/// Writes the file with changed metadata.
fn rewrite(
    file: &Path,
    target: &Target,
    out: &mut impl Write,
    change: impl FnOnce(&mut Writer, &Reader<File>) -> Result<()>,
) -> Result<()> {
    let output = Output::new(target.output.as_deref().unwrap_or(file), target.force, "--output FILE")?;
    let mut reader = Reader::open(file)?;
    let mut writer = Writer::new();
    writer.set_kv(&reader)?;
    change(&mut writer, &reader)?;
    for t in reader.tensors() {
        writer.declare(t.name(), t.dtype(), t.shape())?;
    }
    let bar = ProgressBar::new(reader.tensors().map(|t| t.size() as u64).sum());
    bar.set_style(ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes}, {eta} left")?);
    writer.write_with(output.path(), |t, to| reader.copy(t.name(), bar.wrap_write(to)).map_err(io::Error::other))?;
    bar.finish_and_clear();
    writeln!(out, "gguf: wrote {}", output.path().display())?;
    Ok(())
}
