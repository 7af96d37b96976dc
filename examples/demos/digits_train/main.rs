//! Trains the network of `sched_demo` with ggml's gradients and optimiser, and writes `examples/data/digits.gguf`.
//!
//! ```text
//! cargo run --release --example digits_train -- --force
//! cargo run --release --example digits_train -- --help
//! ```

mod cli;
mod network;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser as _;
use demos::digits::data;
use demos::output::Output;
use fastrand::Rng;
use ggml::opt::AdamW;
use ggml::{Backend, Context, Sched};
use indicatif::{ProgressBar, ProgressStyle};

use cli::Cli;
use network::{BATCH, Trainer, accuracy, evaluate, parameters, save};

/// One of this many training images is held out for validation.
const VALIDATE_EVERY: usize = 10;
/// The learning rate of the first epoch. It decays to almost zero (cosine schedule).
const RATE: f32 = 2e-3;
/// The weight decay.
const DECAY: f32 = 1e-2;
/// The required accuracy on the test images.
const REQUIRED: f64 = 0.95;

fn main() -> ExitCode {
    demos::run(|| train(&Cli::parse(), &mut io::stdout()))
}

fn train(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let output = Output::new(&cli.output, cli.force, "--output FILE")?;
    let data::Split { train, test } = data::load(&cli.data)?;
    let (validation, train) = train.split_at(train.len() / VALIDATE_EVERY);
    let mut rng = Rng::with_seed(cli.seed);

    let mut cpu = Backend::cpu()?;
    cpu.set_threads(usize::from(cli.threads))?;
    let memory = cpu.device().buffer_type();
    let mut sched = Sched::builder().backend(cpu).build()?;
    let parameters = parameters(memory, &mut rng)?;
    let ctx = Context::new();
    let epochs = cli.epochs;
    let schedule = move |epoch| AdamW::new().with_alpha(rate(epoch, epochs.into())).with_wd(DECAY);
    let mut trainer = Trainer::new(&ctx, &parameters, &train, schedule, cli.seed)?;

    let (n_train, n_validation, n_test) = (train.len(), validation.len(), test.len());
    writeln!(out, "{n_train} images to train, {n_validation} to validate, {n_test} to test; seed {}", cli.seed)?;
    let bar = ProgressBar::new(u64::from(cli.epochs) * u64::try_from(n_train / BATCH)?);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} batches, {eta} left")?);
    for epoch in 1..=cli.epochs {
        let trained = trainer.epoch(&mut sched, &mut rng, |_| bar.inc(1))?;
        let loss = trained.loss().map_or(f64::NAN, |loss| loss.value);
        let validated = accuracy(&evaluate(&mut sched, &parameters, &validation)?)?;
        let trained = accuracy(&trained)?;
        let line =
            format!("epoch {epoch:2}: loss {loss:.4}, accuracy {trained:.4} training, {validated:.4} validation");
        bar.suspend(|| writeln!(out, "{line}"))?;
    }
    bar.finish_and_clear();

    let tested = accuracy(&evaluate(&mut sched, &parameters, &test)?)?;
    ensure!(
        tested >= REQUIRED,
        "the model tells {tested:.4} of the test images, but {REQUIRED} are required: it is not written; train for more \
         epochs (--epochs) or with another --seed"
    );
    save(&parameters, cli.seed, output.path())?;
    writeln!(out, "digits_train: accuracy={tested:.4} model={}", cli.output.display())?;
    Ok(())
}

/// The learning rate of an epoch.
fn rate(epoch: usize, epochs: usize) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a share of a few thousand epochs")]
    let done = (epoch - 1) as f32 / epochs as f32;
    RATE * f32::midpoint(1.0, (std::f32::consts::PI * done).cos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    use ggml::gguf::Reader;

    /// Trains as the program does with these arguments, and returns what it printed and the file that it wrote.
    fn run(name: &str, arguments: &[&str]) -> (Result<String>, PathBuf) {
        let path = std::env::temp_dir().join(format!("digits-train-{}-{name}.gguf", std::process::id()));
        let output = path.to_str().unwrap();
        let mut out = Vec::new();
        let cli = Cli::parse_from(["digits_train", "--output", output].iter().chain(arguments));
        (train(&cli, &mut out).map(|()| String::from_utf8(out).unwrap()), path)
    }

    fn read_and_remove(path: &Path) -> Vec<u8> {
        let bytes = std::fs::read(path).unwrap();
        std::fs::remove_file(path).unwrap();
        bytes
    }

    #[test]
    fn training_again_matches_the_committed_model() {
        let (printed, path) = run("again", &[]);
        let printed = printed.unwrap();
        let new = Reader::from_bytes(read_and_remove(&path)).unwrap();
        let old = Reader::open(demos::digits::model::DEFAULT_PATH).and_then(Reader::into_memory).unwrap();
        assert!(new.key_values().eq(old.key_values()));
        let shapes =
            |file: &Reader<Vec<u8>>| file.tensors().map(|t| (t.name().to_owned(), t.shape())).collect::<Vec<_>>();
        assert_eq!(shapes(&new), shapes(&old));
        let last = printed.lines().next_back().unwrap().strip_prefix("digits_train: accuracy=").unwrap();
        let accuracy: f64 = last.split(' ').next().unwrap().parse().unwrap();
        assert!(accuracy >= 0.975, "{printed}");
    }

    #[test]
    fn bad_model_is_not_written() {
        let (result, path) = run("bad", &["--epochs", "1"]);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("0.95 are required") && text.contains("--epochs"), "{text}");
        assert!(!path.exists());
    }

    #[test]
    fn output_error_names_the_path() {
        let mut out = Vec::new();
        let mut run = |arguments: &[&str]| {
            let cli = Cli::parse_from(["digits_train"].iter().chain(arguments));
            format!("{:#}", train(&cli, &mut out).unwrap_err())
        };
        let text = run(&["--output", "/no/such/place/digits.gguf"]);
        assert!(text.contains("the folder /no/such/place is not there") && text.contains("--output FILE"), "{text}");
        // The model of the repository.
        let text = run(&[]);
        assert!(text.contains("digits.gguf is there already: --force replaces it"), "{text}");
        assert!(out.is_empty(), "work had begun");
    }

    #[test]
    fn learning_rate_decays_to_almost_zero() {
        let rates: Vec<_> = (1..=60).map(|epoch| rate(epoch, 60)).collect();
        assert_eq!(rates.first(), Some(&RATE));
        assert!(rates.is_sorted_by(|a, b| a > b), "{rates:?}");
        assert!(rates.last().is_some_and(|&rate| rate > 0.0 && rate < RATE / 100.0), "{rates:?}");
    }
}
