//! Converts the tensors of a GGUF file to another type, or to a mixture of types.
//!
//! ```text
//! cargo run --release --example quantize -- model.gguf small.gguf --type q4_K
//! cargo run --release --example quantize -- model.gguf small.gguf --mix q4_K_M
//! cargo run --release --example quantize -- --help
//! ```

mod cli;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser as _;
use demos::Shown;
use demos::convert::Job;
use demos::imatrix::Imatrix;
use demos::output::Output;
use ggml::Quantize as _;
use ggml::gguf::{Reader, TensorInfo, Writer};
use ggml::{DType, sys};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use cli::{Cli, can_quantize};

fn main() -> ExitCode {
    demos::run(|| run(&Cli::parse(), &mut io::stdout()))
}

/// What to do with a tensor.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Convert(DType),
    /// Keep it, for this reason.
    Keep(&'static str),
}

impl Plan {
    /// `dtype`: the type that the tensor should get, if any.
    fn of(cli: &Cli, t: &TensorInfo, dtype: Option<DType>) -> Self {
        let ne = t.shape().ne();
        let Some(dtype) = dtype else { return Self::Keep("the mixture leaves it") };
        if cli.keep.iter().any(|part| t.name().contains(part)) {
            Self::Keep("--keep names it")
        } else if t.dtype() == dtype {
            Self::Keep("it has the type")
        } else if !can_quantize(t.dtype()) {
            Self::Keep("it holds no numbers that can be converted")
        } else if ne.iter().filter(|&&n| n > 1).count() < 2 {
            Self::Keep("it has one dimension")
        } else if dtype.row_size(ne[0]).is_none() {
            Self::Keep("its rows are no whole blocks")
        } else {
            Self::Convert(dtype)
        }
    }
}

/// The totals of a run.
#[derive(Debug, Default)]
struct Sums {
    converted: usize,
    /// The number of converted tensors with an importance matrix.
    weighted: usize,
    kept: usize,
    before: u64,
    after: u64,
    squares: f64,
    numbers: u64,
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let output = cli.output.display();
    let place = Output::new(&cli.output, cli.force, "OUTPUT")?;
    let threads = cli.threads.unwrap_or_else(demos::processors);
    let mut reader = Reader::open(&cli.input)?;
    let weights = cli.imatrix.as_deref().map(Imatrix::read).transpose()?.unwrap_or_default();

    let mut writer = Writer::new();
    writer.set_kv(&reader)?;
    describe(&mut writer, cli)?;
    let types = cli.mix.map(|mix| mix.types(&reader, cli.imatrix.is_some()));
    let wanted = |t: &TensorInfo| types.as_ref().map_or(cli.dtype, |types| types.get(t.name()).copied());
    let plans: Vec<_> = reader.tensors().map(|t| Plan::of(cli, t, wanted(t))).collect();
    for (t, plan) in reader.tensors().zip(&plans) {
        let dtype = if let Plan::Convert(dtype) = plan { *dtype } else { t.dtype() };
        writer.declare(t.name(), dtype, t.shape())?;
    }
    let bar = ProgressBar::new(reader.tensors().map(|t| t.size() as u64).sum());
    bar.set_style(ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes}, {eta} left")?);
    let (mut sums, mut plans, mut failure) = (Sums::default(), plans.into_iter(), None);
    let written = writer.write_with(place.path(), |new, to| {
        let plan = plans.next().unwrap_or(Plan::Convert(new.dtype()));
        let line = tensor(&mut reader, new, &plan, &weights, threads, &bar, &mut sums, to);
        let done = line.and_then(|line| Ok(bar.suspend(|| writeln!(out, "{line}"))?));
        done.map_err(|e| {
            failure = Some(e.context(format!("tensor `{}`", Shown::name(new.name()))));
            io::Error::other("stopped")
        })
    });
    bar.finish_and_clear();
    if let Some(error) = failure {
        return Err(error);
    }
    written?;
    let Sums { converted, weighted, kept, before, after, .. } = sums;
    let error = rmse(sums.squares, sums.numbers);
    writeln!(
        out,
        "quantize: converted={converted} weighted={weighted} kept={kept} bytes={before} to {after} rmse={error:.3e} file={output}"
    )?;
    Ok(())
}

/// Writes the metadata on file types that programs built on ggml expect.
fn describe(writer: &mut Writer, cli: &Cli) -> Result<()> {
    // There are fewer than a hundred file types.
    let of_type = |dtype| (0..100).find(|&n| DType::from_ftype(n) == Some(dtype)).and_then(|n| u32::try_from(n).ok());
    if let Some(number) = cli.mix.map(|mix| mix.ftype).or_else(|| of_type(cli.dtype?)) {
        writer.set("general.file_type", number)?;
    }
    if cli.mix.is_some() || cli.dtype.is_some_and(DType::is_quantized) {
        writer.set("general.quantization_version", sys::GGML_QNT_VERSION)?;
    }
    Ok(())
}

/// Writes a tensor, and prints a line about it.
#[expect(clippy::too_many_arguments, reason = "what a run has at hand")]
fn tensor(
    reader: &mut Reader<std::fs::File>,
    new: &TensorInfo,
    plan: &Plan,
    weights: &Imatrix,
    threads: NonZeroUsize,
    bar: &ProgressBar,
    sums: &mut Sums,
    to: &mut dyn Write,
) -> Result<String> {
    let name = new.name();
    let (from, before) = reader.tensor(name).map(|t| (t.dtype(), t.size()))?;
    sums.before += before as u64;
    sums.after += new.size() as u64;
    let (to_type, shape) = (new.dtype(), new.shape());
    if let Plan::Keep(why) = plan {
        reader.copy(name, bar.wrap_write(to))?;
        sums.kept += 1;
        let name = Shown::name(name);
        return Ok(format!("{name} {shape}: stays {from}: {why}"));
    }
    let [columns, rows, a, b] = shape.ne();
    let (columns, rows, matrices) = (usize::try_from(columns)?, usize::try_from(rows)?, usize::try_from(a * b)?);
    let weights = weights.of(name, columns, matrices)?;
    ensure!(
        weights.is_some() || !to_type.requires_imatrix(),
        "{to_type} needs an importance matrix (--imatrix FILE), which must have weights for it; --keep leaves the tensor"
    );
    let job = Job { from, to: to_type, columns, rows, weights: weights.as_deref() };
    let converted = job.run(&reader.read(name)?, threads, |n| bar.inc(n as u64))?;
    to.write_all(&converted.bytes)?;
    let n = columns * rows * matrices;
    sums.converted += 1;
    sums.weighted += usize::from(weights.is_some());
    sums.squares += converted.squares;
    sums.numbers += n as u64;
    let error = rmse(converted.squares, n as u64);
    let (before, after) = (HumanBytes(before as u64), HumanBytes(new.size() as u64));
    let name = Shown::name(name);
    Ok(format!("{name} {shape}: {from} to {to_type}, {before} to {after}, rmse {error:.3e}"))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn rmse(squares: f64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { (squares / n as f64).sqrt() }
}
