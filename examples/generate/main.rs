//! Trains a small decoder on bytes of text, and lets it write on: the loop that every engine for language models has.
//!
//! ```text
//! cargo run --release --example generate -- train --output model.gguf
//! cargo run --release --example generate -- sample --model model.gguf 'The scheduler'
//! cargo run --release --example generate -- --help
//! ```
//!
//! `model.rs` has the computation, `cache.rs` the cache and the steps, `train.rs` the training.

mod cache;
mod check;
mod cli;
#[path = "../quantize/convert.rs"]
mod convert;
#[path = "../../benches/overhead/counted.rs"]
mod counted;
mod file;
mod model;
mod plot;
#[cfg(test)]
mod reference;
mod sample;
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;
mod text;
mod train;

use std::io::{self, IsTerminal as _, Write};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use ggml::{Backend, Sched};
use indicatif::{ProgressBar, ProgressStyle};

use cache::Decoder;
use check::Check;
use cli::{Cli, Command};
use model::{Config, Model};
use sample::Sampler;
use support::output::Output;
use text::Text;
use train::Training;

/// The sizes of the model that is trained.
const CONFIG: Config = Config { layers: 2, heads: 4, width: 128, inner: 384, window: 128 };
/// What is trained to be compared, in less than a minute.
const CHECK: Check = Check { config: CONFIG, training: Training { steps: 300, seed: 1 }, bits: 3.0 };

fn main() -> ExitCode {
    support::print(|out| run(&Cli::parse(), out))
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<()> {
    match &cli.command {
        Some(Command::Train(cli)) => train(CONFIG, cli, out),
        Some(Command::Sample(cli)) => sample(cli, out),
        None => check::run(&CHECK, &Text::shipped(least(CONFIG))?, out),
    }
}

/// Trains a model, and writes it down.
fn train(config: Config, cli: &cli::Train, out: &mut impl Write) -> Result<()> {
    let output = Output::new(&cli.output, cli.force, "--output FILE")?;
    let plot = Output::of(cli.plot.as_ref(), cli.force, "--plot SVG")?;
    plot.iter().try_for_each(|plot| plot.differs(&output))?;
    let least = least(config);
    let text = if cli.text.is_empty() { Text::shipped(least) } else { Text::read(&cli.text, least) }?;
    writeln!(out, "{} bytes to train on, {} held out; seed {}", text.train.len(), text.held_out.len(), cli.seed)?;
    let how = Training { steps: cli.steps, seed: cli.seed };
    let mut sched = sched(cli.threads)?;
    let bar = bar(how.steps.into())?;
    let mut losses = Vec::new();
    let weights = train::train(config, &text, how, &mut sched, |loss| {
        losses.push(loss / std::f32::consts::LN_2);
        bar.inc(1);
        bar.set_message(format!("{:.3} bits", train::bits(loss.into())));
    })?;
    bar.finish_and_clear();
    let model = Model::new(config, |name| weights.tensor(name))?;
    let held_out = train::loss(&model, &mut sched, &text.held_out)?;
    let path = cli.output.display();
    let file = file::write(config, how, &weights)?;
    // The model first: it is what the time went into.
    file.write(output.path()).with_context(|| format!("can't write {path} (name another place with --output FILE)"))?;
    if let Some(plot) = &plot {
        plot.write(plot::svg(&losses)?.as_bytes())?;
    }
    let bits = train::bits(held_out);
    writeln!(out, "generate: loss={held_out:.4} bits_per_byte={bits:.3} steps={} model={path}", how.steps)?;
    Ok(())
}

/// Writes on behind a prompt.
fn sample(cli: &cli::Sample, out: &mut impl Write) -> Result<()> {
    let path = cli.model.display();
    let opened = file::open(&cli.model, cli.dtype);
    let (config, weights) = opened.with_context(|| format!("can't use {path} (`generate train` makes a model)"))?;
    let model = Model::new(config, |name| weights.tensor(name))?;
    let memory = cache::memory(config, cli.cache)?;
    let mut decoder = Decoder::new(&model, &memory, sched(cli.threads)?)?;
    let mut sampler = Sampler::new(cli.temperature, cli.top_k.get(), cli.seed);

    out.write_all(cli.prompt.as_bytes())?;
    let prompt: Vec<_> = cli.prompt.bytes().map(i32::from).collect();
    // No byte looks further back than the window.
    let prompt = prompt.rchunks(config.window).next().context("a prompt has one byte at least")?;
    let mut next = sampler.pick(decoder.read(prompt)?);
    let (terminal, mut before) = (io::stdout().is_terminal(), 0);
    for _ in 0..cli.tokens {
        out.write_all(&[if terminal { harmless(before, next) } else { next }])?;
        before = next;
        out.flush()?;
        next = sampler.pick(decoder.read(&[next.into()])?);
    }
    Ok(writeln!(out)?)
}

/// A byte of a model's as a terminal gets it, behind another one: none that it obeys.
fn harmless(before: u8, byte: u8) -> u8 {
    match (before, byte) {
        (_, b'\n' | b'\t') => byte,
        // The latter are control characters in UTF-8.
        (_, ..0x20 | 0x7f) | (0xc2, 0x80..=0x9f) => b'?',
        _ => byte,
    }
}

/// The fewest bytes that must be held out.
fn least(config: Config) -> usize {
    2 * config.window
}

/// A scheduler for the CPU.
fn sched(threads: NonZeroUsize) -> Result<Sched> {
    let mut cpu = Backend::cpu()?;
    cpu.set_threads(threads.get())?;
    Ok(Sched::builder().backend(cpu).build()?)
}

fn bar(n: u64) -> Result<ProgressBar> {
    let bar = ProgressBar::new(n);
    Ok(bar.with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} steps, {msg}, {eta} left")?))
}
