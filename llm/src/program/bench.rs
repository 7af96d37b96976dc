//! `bench`: how fast a model is.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ggml_llm::made_up::Recipe;
use ggml_llm::place::Devices;
use ggml_llm::{Architecture, Batch, Session};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  ggml-llm bench --made-up llama --dtype q8_0 --layers 16 --width 1024 --threads 2")]
pub(crate) struct BenchArguments {
    /// A GGUF file
    file: Option<PathBuf>,
    #[command(flatten)]
    devices: Devices,
    /// Measure a model of this architecture with random weights
    #[arg(long, conflicts_with = "file")]
    made_up: Option<String>,
    /// The type of its matrices
    #[arg(long, default_value = "q8_0")]
    dtype: String,
    /// The number of its layers
    #[arg(long, default_value_t = 16)]
    layers: u32,
    /// Its embedding size
    #[arg(long, default_value_t = 1024)]
    width: u32,
    /// The tokens of a prompt
    #[arg(long, default_value_t = 512)]
    prompt: usize,
    /// The number of steps
    #[arg(long, default_value_t = 128)]
    steps: usize,
    /// Sequences at once, in a third measurement
    #[arg(long, default_value_t = 8)]
    sequences: usize,
    /// How often each is measured; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[expect(clippy::print_stdout, reason = "the program's output")]
pub(crate) fn run(arguments: &BenchArguments) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = match (&arguments.file, &arguments.made_up) {
        (Some(file), _) => file.clone(),
        (None, Some(name)) => made_up(arguments, name, folder.path().join("model.gguf"))?,
        (None, None) => bail!("give a FILE, or --made-up"),
    };
    let start = Instant::now();
    let model = arguments.devices.load(&file)?;
    println!("{}, loaded in {:.2} s", model.config().architecture, start.elapsed().as_secs_f64());
    let n_vocab = i32::try_from(model.config().n_vocab)?;
    let n_seq = arguments.sequences.max(1);
    let mut devices = arguments.devices.session(model, n_seq)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut tokens = |n: usize| (0..n).map(|_| rng.i32(0..n_vocab)).collect::<Vec<_>>();
    let (prompt, steps) = (tokens(arguments.prompt), tokens(arguments.steps));
    let cases: [(String, usize, Measure<'_>); 3] = [
        (format!("pp{}", prompt.len()), prompt.len(), Box::new(|s| prompt_time(s, &prompt))),
        (format!("tg{}", steps.len()), steps.len(), Box::new(|s| step_time(s, &steps, 1))),
        (
            format!("tg{} of {n_seq} sequences", steps.len()),
            n_seq * steps.len(),
            Box::new(|s| step_time(s, &steps, n_seq)),
        ),
    ];
    for (name, n, measure) in cases.iter().filter(|(_, n, _)| *n > 0) {
        measure(&mut devices)?; // plans, and touches all memory
        let mut times = Vec::new();
        for _ in 0..arguments.rounds.max(1) {
            times.push(measure(&mut devices)?);
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).context("no round")?.as_secs_f64();
        let count = f64::from(u32::try_from(*n)?);
        println!("{name}: {:.1} tokens per second, median of {}", count / median, times.len());
    }
    Ok(())
}

/// Measures one round.
type Measure<'a> = Box<dyn Fn(&mut Session) -> Result<Duration> + 'a>;

fn made_up(arguments: &BenchArguments, name: &str, file: PathBuf) -> Result<PathBuf> {
    let architecture = Architecture::ALL.iter().find(|a| a.name() == name);
    let mut recipe = Recipe::new(*architecture.with_context(|| format!("there is no architecture `{name}`"))?);
    recipe.dtype = arguments.dtype.parse().context("--dtype")?;
    (recipe.n_layer, recipe.n_embd, recipe.n_ff) = (arguments.layers, arguments.width, 3 * arguments.width);
    (recipe.n_head, recipe.n_head_kv) = (arguments.width.div_ceil(64), arguments.width.div_ceil(256));
    (recipe.n_vocab, recipe.n_ctx) = (32_000, 4096);
    recipe.write(&file)?;
    Ok(file)
}

fn empty(session: &mut Session, n_seq: usize) -> Result<()> {
    (0..n_seq).try_for_each(|sequence| Ok(session.truncate(sequence, 0)?))
}

fn prompt_time(session: &mut Session, tokens: &[i32]) -> Result<Duration> {
    empty(session, 1)?;
    let mut batch = Batch::new();
    batch.prompt(0, tokens);
    let start = Instant::now();
    session.decode(&batch)?;
    Ok(start.elapsed())
}

fn step_time(session: &mut Session, tokens: &[i32], n_seq: usize) -> Result<Duration> {
    empty(session, n_seq)?;
    let mut batch = Batch::new();
    let start = Instant::now();
    for &token in tokens {
        batch.clear();
        (0..n_seq).for_each(|sequence| batch.push(sequence, token, true));
        session.decode(&batch)?;
    }
    let time = start.elapsed();
    empty(session, n_seq)?;
    Ok(time)
}
