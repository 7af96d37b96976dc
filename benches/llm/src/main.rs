//! Compares engines that run the same language model: this project's, llama.cpp, candle and mistral.rs.
//!
//! `cargo xtask llm-bench` builds the engines and runs this. Each is a process of its own. They take turns, so that whatever
//! else the machine does meets all alike. Numbers are medians over the rounds.

mod request;
mod running;
mod table;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use request::Request;
use running::Running;
use table::Row;

/// The idle time before an engine's turn: threads of the last one may still spin.
const SETTLE: Duration = Duration::from_millis(300);

#[derive(Debug, Parser)]
struct Cli {
    /// The engines: NAME=PROGRAM or NAME=PROGRAM+ARGUMENT; the first makes the models
    #[arg(required = true)]
    engines: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// The types of the matrices, or files of models of that shape, such as mixtures that the example `quantize` makes of one
    #[arg(long, value_delimiter = ',', default_values_t = ["f16", "q8_0", "q4_0", "q4_K"].map(String::from))]
    types: Vec<String>,
    /// What is measured: `pp512` is a prompt of 512 tokens, `tg128` 128 steps, `tg32x8` 32 steps of 8 sequences
    #[arg(long, value_delimiter = ',', default_values = ["pp512", "tg128", "tg32x8"])]
    requests: Vec<Request>,
    /// How often all take their turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The embedding size
    #[arg(long, default_value_t = 1024)]
    width: usize,
    /// The layers
    #[arg(long, default_value_t = 16)]
    layers: usize,
    /// A model of the family qwen3moe, with eight experts, of which a token takes three
    #[arg(long)]
    experts: bool,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let engines = cli.engines.iter().map(|text| Engine::parse(text)).collect::<Result<Vec<_>>>()?;
    let folder = tempfile::tempdir()?;
    let n = cli.types.len() * cli.threads.len() * (cli.rounds + 1) * engines.len() * cli.requests.len();
    let bar = ProgressBar::new(n as u64);
    bar.set_style(ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len}, {eta} left")?);
    for dtype in &cli.types {
        let file = folder.path().join("model.gguf");
        let size = make(&engines[0].program, &file, dtype, &cli)?;
        for &threads in &cli.threads {
            let mut running = Vec::new();
            for engine in &engines {
                match Running::start(engine, &file, threads) {
                    Ok(one) => running.push(one),
                    Err(error) => bar.println(format!("LEFT OUT: {} with {dtype}: {error:#}", engine.name)),
                }
            }
            ensure!(!running.is_empty(), "no engine started");
            let mut seconds = vec![vec![Vec::new(); cli.requests.len()]; running.len()];
            for round in 0..=cli.rounds {
                for turn in 0..running.len() {
                    let i = (turn + round) % running.len(); // rotates the order
                    thread::sleep(SETTLE);
                    for (request, seconds) in cli.requests.iter().zip(&mut seconds[i]) {
                        bar.set_message(format!("{dtype} {request} {}", running[i].process.name()));
                        let time = running[i].ask(&request.line())?;
                        if round > 0 {
                            seconds.push(time); // the first round plans, and touches all memory
                        }
                        bar.inc(1);
                    }
                }
            }
            let mut rows = Vec::new();
            for (engine, seconds) in running.iter().zip(seconds) {
                let speed = |(seconds, request): (_, &Request)| request.tokens() / median(seconds);
                let speeds: Vec<_> = seconds.into_iter().zip(&cli.requests).map(speed).collect();
                let of_one = speeds.iter().zip(&cli.requests).find(|(_, request)| request.is_of_one_sequence());
                let bytes = of_one.map(|(speed, _)| size as f64 * speed);
                rows.push(Row {
                    name: engine.process.name().into(),
                    speeds,
                    start: engine.start,
                    peak: engine.process.peak()?,
                    bytes,
                });
            }
            drop(running);
            let (most, peak) = (plain_read(threads), multiply_adds(threads));
            bar.suspend(|| {
                println!("\n{dtype}, {threads} threads, {:.0} MB, tokens per second:", size as f64 / 1e6);
                println!("{}", table::speeds(&cli.requests, &rows));
                println!("a plain read of memory by so many threads: {:.1} GB/s", most / 1e9);
                let tokens = 0.9 * peak * 1e9 / operations(&cli);
                println!(
                    "multiply-adds alone: {peak:.0} GFLOP/s; 90 % of them are {tokens:.0} tokens of a prompt per second"
                );
                println!("{}", table::ratios(dtype, threads, &cli.requests, &rows));
            });
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// A program that runs models.
struct Engine {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Engine {
    fn parse(text: &str) -> Result<Self> {
        let (name, program) = text.split_once('=').with_context(|| format!("{text}: not NAME=PROGRAM"))?;
        let mut parts = program.split('+').map(String::from);
        let program = parts.next().context("a program")?.into();
        Ok(Self { name: name.into(), program, arguments: parts.collect() })
    }
}

/// Writes a model, and returns the bytes that a step reads: all but the embedding, of which it reads a row.
fn make(program: &Path, file: &Path, dtype: &str, cli: &Cli) -> Result<u64> {
    if Path::new(dtype).is_file() {
        std::fs::copy(dtype, file)?;
    } else {
        let mut command = Command::new(program);
        command.arg("make").arg(file).arg(dtype).args([cli.width, cli.layers].map(|n| n.to_string()));
        command.args(cli.experts.then_some("experts"));
        ensure!(command.status()?.success(), "{command:?} failed");
    }
    let all = std::fs::metadata(file)?.len() as f64;
    let [read, held] = in_layers(cli);
    // The embedding and the output are alike.
    let output = 32_000.0 * cli.width as f64;
    Ok((all * (read + output) / (held + 2.0 * output)) as u64)
}

/// The numbers in matrices of layers: those that a token is multiplied by, and all.
fn in_layers(cli: &Cli) -> [f64; 2] {
    let (attention, network) = (2.0 + 2.0 / 4.0, 3.0 * 3.0);
    // An expert is a third of the usual network; a token takes three of eight.
    let held = if cli.experts { 8.0 / 3.0 * network } else { network };
    [network, held].map(|networks| (cli.layers * cli.width * cli.width) as f64 * (attention + networks))
}

/// The operations of a token of a prompt, without attention. (Only the last one is multiplied by the output.)
fn operations(cli: &Cli) -> f64 {
    2.0 * in_layers(cli)[0]
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Bytes per second of a sum over 256 MiB per thread, the best of five.
fn plain_read(threads: usize) -> f64 {
    // Not zeros: the system would give them one page for all.
    let lists: Vec<Vec<u64>> = (1..=threads).map(|i| vec![i as u64; 32 << 20]).collect();
    let seconds = best(threads, |i| {
        black_box(lists[i].iter().fold(0_u64, |sum, x| sum.wrapping_add(*x)));
    });
    (threads * (256 << 20)) as f64 / seconds
}

/// 10^9 operations per second of a loop of multiply-adds in each thread, the best of five; 0 without AVX2 or NEON.
fn multiply_adds(threads: usize) -> f64 {
    let operations = peak::multiply_adds().unwrap_or_default();
    operations * threads as f64 / best(threads, |_| drop(peak::multiply_adds()))
}

/// The seconds that so many threads take at once, the best of five.
fn best(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        thread::scope(|scope| {
            for i in 0..threads {
                let work = &work;
                scope.spawn(move || work(i));
            }
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}
