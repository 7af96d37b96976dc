//! Compares engines that compute the same sentence encoder: this crate, llama.cpp, candle, PyTorch and onnxruntime.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --help
//! ```
//!
//! Each is a process of its own. All get the same tokens and as many threads, and take turns, so that whatever else the
//! machine does meets all alike. Numbers are medians over the rounds.

mod build;
mod engine;
mod table;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use wire::Request;

use engine::{Kind, Running};
use table::{Cell, Row};

/// The idle time before an engine's turn.
const SETTLE: Duration = Duration::from_millis(300);
/// The minimum computing time per engine and round, unless `MOST` repetitions take less.
const SECONDS: f64 = 0.3;
const MOST: usize = 50;

/// Token ids of words; lower ids are special tokens, higher ones may not exist.
const WORDS: std::ops::Range<i32> = 1_000..30_000;
/// The special tokens at the start and end of a sentence.
const FIRST: i32 = 101;
const LAST: i32 = 102;

#[derive(Debug, Parser)]
#[command(max_term_width = 120)]
struct Cli {
    /// Threads of each engine [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// How often all take their turns
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,

    /// Sentences of a call, and tokens of each
    #[arg(long, value_name = "SENTENCESxTOKENS", value_delimiter = ',', default_values_t = [
        Cell::new(1, 16), Cell::new(1, 128), Cell::new(32, 16), Cell::new(32, 128),
    ])]
    cells: Vec<Cell>,

    /// The engines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::USUAL)]
    engines: Vec<Kind>,

    /// Let no engine use instructions beyond those of AVX2 and FMA
    #[arg(long)]
    avx2: bool,

    /// The Python that the environment of PyTorch and onnxruntime is made with
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let threads = match cli.threads {
        Some(n) => n,
        None => thread::available_parallelism()?.get(),
    };
    let places = build::Places::find(cli.avx2)?;
    places.model()?;
    let mut running: Vec<Running> = Vec::new();
    for kind in &cli.engines {
        let started = kind.command(&places, &cli.python, threads).and_then(|command| Running::start(*kind, command));
        match started {
            Ok(engine) => running.push(engine),
            // The others are still worth comparing; the table must show that it is incomplete.
            Err(error) => eprintln!("LEFT OUT: {}: {error:#}", kind.name()),
        }
    }
    ensure!(!running.is_empty(), "no engine started");

    let mut rows: Vec<Row> = running.iter().map(|e| Row::new(e.kind, e.start)).collect();
    let bar = ProgressBar::new((cli.cells.len() * (cli.rounds + 1) * running.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{msg:24} {wide_bar} {pos}/{len}, {eta} left")?);
    for (number, cell) in cli.cells.iter().enumerate() {
        let sentences = sentences(*cell, number as u64);
        // Engines choose plans, threads and memory when a shape occurs for the first time.
        let mut repeats = Vec::new();
        let mut vectors = Vec::new();
        for engine in &mut running {
            bar.set_message(format!("{cell} {}", engine.kind.name()));
            let answer = engine.ask(&Request { sentences: sentences.clone(), repeat: 3 })?;
            let fastest = answer.seconds.into_iter().fold(f64::INFINITY, f64::min);
            repeats.push(((SECONDS / fastest).ceil() as usize).clamp(1, MOST));
            vectors.push(answer.vectors);
            bar.inc(1);
        }
        let mut seconds = vec![Vec::new(); running.len()];
        for round in 0..cli.rounds {
            for turn in 0..running.len() {
                // Rotates the order.
                let i = (turn + round) % running.len();
                bar.set_message(format!("{cell} {}", running[i].kind.name()));
                // Threads of the previous engine may still spin while they wait for work.
                thread::sleep(SETTLE);
                let answer = running[i].ask(&Request { sentences: sentences.clone(), repeat: repeats[i] })?;
                seconds[i].push(median(answer.seconds).context("no times")?);
                bar.inc(1);
            }
        }
        let reference = reference(&running).map(|i| vectors[i].clone());
        for (i, row) in rows.iter_mut().enumerate() {
            let time = median(std::mem::take(&mut seconds[i])).context("no rounds")?;
            row.tokens_per_second.push(cell.tokens_of_call() as f64 / time);
            if let Some(reference) = &reference {
                row.cosine = row.cosine.min(worst(&vectors[i], reference)?);
            }
        }
    }
    bar.finish_and_clear();
    for (row, engine) in rows.iter_mut().zip(&mut running) {
        row.peak = engine.process.peak()?;
    }
    println!("threads={threads} rounds={}, tokens per second:", cli.rounds);
    match reference(&running) {
        Some(i) => println!("(cosine: the least to the vectors of {})", running[i].kind.name()),
        None => println!("(cosine: no engine of others in f32 ran, so there is none)"),
    }
    println!("{}", table::speeds(&cli.cells, &rows));
    println!("Ratios of this crate to the others, of tokens per second:\n{}", table::ratios(&cli.cells, &rows));
    for goal in table::goals(&cli.cells, &rows) {
        println!("{goal}");
    }
    Ok(())
}

/// The engine whose vectors are the reference: an f32 engine other than ours.
fn reference(running: &[Running]) -> Option<usize> {
    [Kind::Torch, Kind::Candle, Kind::Onnx].iter().find_map(|kind| running.iter().position(|e| e.kind == *kind))
}

/// Sentences of random words, the same in every run.
fn sentences(cell: Cell, seed: u64) -> Vec<Vec<i32>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sentence = || {
        let words = cell.tokens.saturating_sub(2);
        std::iter::once(FIRST).chain((0..words).map(|_| random.i32(WORDS))).chain([LAST]).collect()
    };
    (0..cell.sentences).map(|_| sentence()).collect()
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    Some(if numbers.len().is_multiple_of(2) { (upper + numbers.get(middle - 1)?) / 2.0 } else { upper })
}

/// The smallest cosine between vectors of the same sentence.
fn worst(found: &[Vec<f32>], expected: &[Vec<f32>]) -> Result<f64> {
    if found.len() != expected.len() {
        bail!("{} vectors of {} sentences", found.len(), expected.len());
    }
    let cosine = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    // A NaN is the worst result.
    let worst = |a: f64, b: f64| if b.is_nan() { f64::NEG_INFINITY } else { a.min(b) };
    Ok(found.iter().zip(expected).map(cosine).fold(f64::INFINITY, worst))
}
