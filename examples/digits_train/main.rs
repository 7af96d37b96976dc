//! Trains the network of `sched_demo` through ggml's own gradients and optimiser, and writes `examples/data/digits.gguf`.
//!
//! ```text
//! cargo run --release --example digits_train
//! cargo run --release --example digits_train -- --help
//! ```

mod cli;
#[path = "../digits/mod.rs"]
mod digits;
mod network;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser as _;
use fastrand::Rng;
use ggml::opt::AdamW;
use ggml::{Backend, Context, Sched};
use indicatif::{ProgressBar, ProgressStyle};

use cli::Cli;
use digits::data;
use network::{BATCH, Trainer, accuracy, parameters, save};

/// One of so many training images is left for validation.
const VALIDATE_EVERY: usize = 10;
/// The learning rate of the first epoch; it falls to almost nothing along half a cosine.
const RATE: f32 = 2e-3;
/// What keeps weights small.
const DECAY: f32 = 1e-2;
/// What a model must get right of the test images.
const REQUIRED: f64 = 0.95;

fn main() -> ExitCode {
    env_logger::init_from_env(env_logger::Env::default().default_filter_or("off"));
    let Err(error) = train(&Cli::parse(), &mut io::stdout()) else { return ExitCode::SUCCESS };
    // Nothing is left to be told to if that fails.
    let _written = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::FAILURE
}

fn train(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let data::Split { train, test } = data::load(&cli.data)?;
    let (validation, train) = train.split_at(train.len() / VALIDATE_EVERY);
    let mut rng = Rng::with_seed(cli.seed);

    let mut cpu = Backend::cpu()?;
    cpu.set_threads(cli.threads.into())?;
    let memory = cpu.device().buffer_type();
    let mut sched = Sched::builder().backend(cpu).build()?;
    let parameters = parameters(memory, &mut rng)?;
    let ctx = Context::new();
    let mut trainer = Trainer::new(&ctx, &parameters)?;

    let (n_train, n_validation, n_test) = (train.len(), validation.len(), test.len());
    writeln!(out, "{n_train} images to train, {n_validation} to validate, {n_test} to test; seed {}", cli.seed)?;
    let bar = ProgressBar::new(u64::from(cli.epochs) * u64::try_from(n_train / BATCH)?);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} batches, {eta} left")?);
    for epoch in 1..=cli.epochs {
        let how = AdamW { alpha: rate(epoch, cli.epochs), wd: DECAY, ..AdamW::default() };
        let loss = trainer.epoch(&mut sched, &train, how, &mut rng, || bar.inc(1))?;
        let trained = accuracy(&mut sched, &parameters, &train)?;
        let validated = accuracy(&mut sched, &parameters, &validation)?;
        let line =
            format!("epoch {epoch:2}: loss {loss:.4}, accuracy {trained:.4} training, {validated:.4} validation");
        bar.suspend(|| writeln!(out, "{line}"))?;
    }
    bar.finish_and_clear();

    let tested = accuracy(&mut sched, &parameters, &test)?;
    ensure!(
        tested >= REQUIRED,
        "the model tells {tested:.4} of the test images, but {REQUIRED} are required: it is not written; train for more \
         epochs (--epochs) or with another --seed"
    );
    save(&parameters, cli.seed, &cli.output)?;
    writeln!(out, "digits_train: accuracy={tested:.4} model={}", cli.output.display())?;
    Ok(())
}

/// The learning rate of an epoch.
fn rate(epoch: u16, epochs: u16) -> f32 {
    let done = f32::from(epoch - 1) / f32::from(epochs);
    RATE * f32::midpoint(1.0, (std::f32::consts::PI * done).cos())
}
