//! Computes sentence embeddings with the transformer all-MiniLM-L6-v2, and searches for similar sentences.
//!
//! ```text
//! cargo xtask model
//! cargo run --release --example embed -- 'The cat sits on the mat.' 'A dog lies on the rug.'
//! cargo run --release --example embed -- --help
//! ```
//!
//! `encoder.rs` builds the graph; `model.rs` has the weights and batches.

mod check;
mod cli;
mod imatrix;
mod npy;
mod shared;
mod splits;
#[cfg(test)]
mod tests;
mod tokens;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use demos::Shown;
use demos::output::Output;
use embed::model::{self, Kernels, Model};

use cli::Cli;
use imatrix::Imatrix;
use shared::{bar, cosine};
use tokens::Tokens;

/// The maximum number of sentences that are compared pairwise.
const COMPARED: usize = 10;
/// Elements of a vector that are shown.
const SHOWN: usize = 4;

fn main() -> ExitCode {
    demos::print(|out| run(&Cli::parse(), out))
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<()> {
    if cli.check {
        return check::run(cli, out);
    }
    let vectors_to = Output::of(cli.out.as_ref(), cli.force, "--out FILE")?;
    let imatrix_to = Output::of(cli.imatrix.as_ref(), cli.force, "--imatrix FILE")?;
    let mut sentences = cli.sentences.clone();
    if let Some(path) = &cli.file {
        let text = fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        sentences.extend(text.lines().map(str::to_owned));
    }
    ensure!(!sentences.is_empty(), "there are no sentences");
    let path = model_path(cli)?;
    let devices = model::devices(&cli.device)?;
    let by = match cli.kernels {
        // The operands of our own kernels can't be observed.
        Kernels::Own if cli.imatrix.is_some() => Kernels::Ggml,
        by => by,
    };
    let mut model = Model::open(&path, &devices, cli.threads, by)
        .with_context(|| format!("can't use the model {}", path.display()))?;
    let tokenizer = Tokens::new(&model)?;
    let tokens = tokenizer.of(&sentences)?;
    let bar = bar(sentences.len())?;
    let start = Instant::now();
    let mut progress = |n| bar.inc(n as u64);
    if let Some(output) = &imatrix_to {
        let imatrix = Imatrix::of(&mut model, &tokens, cli.batch, progress)?;
        let seconds = start.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let datasets = cli.file.iter().map(|file| file.display().to_string()).collect();
        imatrix.write(output.path(), datasets, model.config().max_tokens)?;
        writeln!(out, "imatrix: matrices={} file={}", imatrix.len(), output.path().display())?;
        return summary(&tokens, seconds, out);
    }
    let vectors = model.embed(&tokens, cli.batch, &mut progress)?;
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();

    if let Some(output) = &vectors_to {
        output.write(&npy::bytes(&vectors)?)?;
    }
    if let Some(query) = &cli.search {
        let query = model.embed(&tokenizer.of(&[query])?, cli.batch, |_| ())?;
        let query = query.first().context("a query has a vector")?;
        search(query, &sentences, &vectors, cli.top, out)?;
    } else if cli.out.is_none() {
        show(&sentences, &vectors, out)?;
    }
    summary(&tokens, seconds, out)
}

fn summary(tokens: &[Vec<i32>], seconds: f64, out: &mut impl Write) -> Result<()> {
    let (sentences, tokens) = (tokens.len(), tokens.iter().map(Vec::len).sum::<usize>());
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let speed = tokens as f64 / seconds;
    writeln!(out, "embed: sentences={sentences} tokens={tokens} seconds={seconds:.3} tokens_per_second={speed:.0}")?;
    Ok(())
}

fn model_path(cli: &Cli) -> Result<PathBuf> {
    if let Some(path) = &cli.model {
        return Ok(path.clone());
    }
    let path = cli.dtype.path();
    ensure!(path.exists(), "the model is not there yet: `cargo xtask model` fetches it (or name another with --model)");
    Ok(path)
}

/// The sentences closest to a query, best first.
fn search(query: &[f32], sentences: &[String], vectors: &[Vec<f32>], top: usize, out: &mut impl Write) -> Result<()> {
    let mut scores: Vec<_> = vectors.iter().map(|v| cosine(query, v)).zip(sentences).enumerate().collect();
    scores.sort_by(|(_, (a, _)), (_, (b, _))| b.total_cmp(a));
    for (i, (score, sentence)) in scores.into_iter().take(top) {
        writeln!(out, "{score:.4}  {:>4}: {}", i + 1, Shown::text(sentence))?;
    }
    Ok(())
}

fn show(sentences: &[String], vectors: &[Vec<f32>], out: &mut impl Write) -> Result<()> {
    for (i, (sentence, vector)) in sentences.iter().zip(vectors).enumerate() {
        let numbers: Vec<_> = vector.iter().take(SHOWN).map(|x| format!("{x:8.5}")).collect();
        let sentence = Shown::text(sentence);
        writeln!(out, "{:>4}  [{}, ... {}]  {sentence}", i + 1, numbers.join(", "), vector.len())?;
    }
    if (2..=COMPARED).contains(&sentences.len()) {
        let line = |first: String, cells: &[String]| format!("{first:>4}{}", cells.concat());
        let head: Vec<_> = (1..=vectors.len()).map(|i| format!("{i:>8}")).collect();
        writeln!(out, "\n{}", line(String::new(), &head))?;
        for (i, a) in vectors.iter().enumerate() {
            let cells: Vec<_> = vectors.iter().map(|b| format!("{:>8.4}", cosine(a, b))).collect();
            writeln!(out, "{}", line((i + 1).to_string(), &cells))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
