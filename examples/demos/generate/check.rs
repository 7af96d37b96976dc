//! Compares all ways of computing one model.

use std::io::Write;
use std::num::NonZeroUsize;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use ggml::DType;
use ggml::gguf::Reader;
use testkit::counted;

use crate::cache::{self, Decoder};
use crate::cli::TEMPERATURE;
use crate::model::{Config, Model};
use crate::sample::Sampler;
use crate::shared::{bar, sched};
use crate::text::Text;
use crate::train::{Training, full_pass, loss};
use crate::{file, train};

/// Tolerance for f32 sums in another order.
const SAME: f32 = 1e-3;
/// Tolerance for f16 keys and values.
const SAME_F16: f32 = 0.1;
/// The maximum increase of the loss by quantisation, in bits per byte.
const QUANTISED: [(DType, f64); 2] = [(DType::Q8_0, 0.02), (DType::Q4_0, 0.3)];
/// Steps in which time and allocations are measured.
const STEPS: u32 = 256;
/// Warm-up steps, in which reused buffers grow.
const BEFORE: u32 = 8;

/// The training, and its required result.
pub(crate) struct Check {
    pub(crate) config: Config,
    pub(crate) training: Training,
    /// The maximum held-out loss, in bits per byte.
    pub(crate) bits: f64,
}

/// The results.
#[derive(Default)]
struct Found {
    faults: Vec<String>,
    diff: f32,
}

impl Found {
    fn below(&mut self, what: &str, value: f64, bound: f64) {
        // A comparison with NaN is false.
        if value.is_nan() || value > bound {
            self.faults.push(format!("{what}: {value} is above {bound}"));
        }
    }

    fn same(&mut self, what: &str, a: &[f32], b: &[f32]) -> f32 {
        let found = diff(a, b);
        self.below(what, found.into(), SAME.into());
        self.diff = self.diff.max(found);
        found
    }

    fn steady(&mut self, speed: &Speed) {
        // Debug builds of the library allocate more: they compare graphs with ggml's.
        if speed.allocations > 0 && !cfg!(debug_assertions) {
            self.faults.push(format!("steps allocate: {speed}"));
        }
        if speed.plans > 1 {
            self.faults.push(format!("steps are planned again: {speed}"));
        }
    }
}

pub(crate) fn run(check: &Check, text: &Text, out: &mut impl Write) -> Result<()> {
    let Check { config, training, .. } = *check;
    let mut sched = sched(NonZeroUsize::MIN)?;
    let mut found = Found::default();

    let bar = bar(training.steps.into())?;
    let start = Instant::now();
    let trained = train::train(config, text, training, &mut sched, |loss| {
        bar.inc(1);
        bar.set_message(format!("{:.3} bits a byte", text.bits(loss.into())));
    })?;
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "{text}")?;
    let file = Reader::from_bytes(file::write(config, training, &text.vocabulary, &trained)?.to_bytes()?)?;
    let (config, _, weights) = file::read(&file, None)?;
    let model = Model::new(config, |name| weights.tensor(name))?;
    let loss_f32 = loss(&model, &mut sched, &text.held_out)?;
    writeln!(out, "trained in {seconds:.1} s: {:.3} bits for each byte that was held out", text.bits(loss_f32))?;
    found.below("bits per byte", text.bits(loss_f32), check.bits);

    let window = config.window;
    let tokens = text.held_out.get(..window + window / 2).context("the text that is held out is too short")?;
    // Longer than the window, so that steps wrap around the ring buffer.
    let full = full_pass(&model, &mut sched, tokens)?;
    let steps = |dtype, tokens, chunk| read(&model, dtype, tokens, chunk);
    let single = steps(DType::F32, tokens, 1)?;
    let diff_window = found.same("steps with a cache of f32", &single, &full);
    let diff_f16 = diff(&steps(DType::F16, tokens, 1)?, &full);
    found.below("steps with a cache of f16", diff_f16.into(), SAME_F16.into());
    writeln!(
        out,
        "steps of one token, and a pass over {} tokens: f32 {diff_window:.1e}, f16 {diff_f16:.1e}",
        tokens.len()
    )?;
    let (prompt, _) = tokens.split_at(window);
    let at_once = steps(DType::F32, prompt, window)?;
    found.same("a prompt in one go", &at_once, full.get(..window * config.vocabulary).unwrap_or_default());
    for chunk in [2, 7, window / 2] {
        let diff = found.same("a prompt in pieces", &steps(DType::F32, prompt, chunk)?, &at_once);
        writeln!(out, "a prompt in pieces of {chunk}, and in one go: {diff:.1e}")?;
    }

    let (prompt, _) = prompt.split_at(window / 4);
    let cached = write_on(&model, prompt, window / 2)?;
    let mut again = prompt.to_vec();
    for _ in 0..window / 2 {
        again.push(Sampler::greedy().pick(config.last(&full_pass(&model, &mut sched, &again)?)));
    }
    if cached != again {
        found.faults.push("the likeliest text of cached steps is not that of full passes".to_owned());
    }
    let bytes: Vec<_> = cached.iter().flat_map(|&token| text.vocabulary.bytes(token)).collect();
    writeln!(out, "the likeliest text: {:?}", String::from_utf8_lossy(&bytes))?;

    let speed_f32 = speed(&model, prompt)?;
    writeln!(out, "f32: {speed_f32}")?;
    found.steady(&speed_f32);
    for (dtype, worse) in QUANTISED {
        let (_, _, weights) = file::read(&file, Some(dtype))?;
        let model = Model::new(config, |name| weights.tensor(name))?;
        let by = text.bits(loss(&model, &mut sched, &text.held_out)? - loss_f32);
        found.below(dtype.name(), by.abs(), worse);
        let speed = speed(&model, prompt)?;
        writeln!(out, "{dtype}: {by:+.4} bits, {speed}")?;
        found.steady(&speed);
    }
    let Speed { tokens_per_s, allocations, .. } = speed_f32;
    writeln!(
        out,
        "generate: loss={loss_f32:.4} steps={} max_abs_diff={:.2e} tokens_per_s={tokens_per_s:.0} allocs_per_step={}",
        training.steps,
        found.diff,
        allocations.div_ceil(STEPS as usize),
    )?;
    ensure!(found.faults.is_empty(), "{}", found.faults.join("; "));
    Ok(())
}

/// The largest difference; infinity for NaN or different lengths.
fn diff(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() || a.iter().chain(b).any(|x| x.is_nan()) {
        return f32::INFINITY;
    }
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The logits after each token, with this many tokens per step.
pub(crate) fn read(model: &Model<'_>, dtype: DType, tokens: &[i32], chunk: usize) -> Result<Vec<f32>> {
    let memory = cache::memory(model.config(), dtype)?;
    let mut decoder = Decoder::new(model, &memory, sched(NonZeroUsize::MIN)?)?;
    let mut logits = Vec::new();
    for chunk in tokens.chunks(chunk) {
        logits.extend(decoder.read(chunk)?);
    }
    Ok(logits)
}

/// The prompt and its greedy continuation.
fn write_on(model: &Model<'_>, prompt: &[i32], n: usize) -> Result<Vec<i32>> {
    let memory = cache::memory(model.config(), DType::F32)?;
    let mut decoder = Decoder::new(model, &memory, sched(NonZeroUsize::MIN)?)?;
    let mut text = prompt.to_vec();
    let mut new = prompt.to_vec();
    for _ in 0..n {
        let next = Sampler::greedy().pick(model.config().last(decoder.read(&new)?));
        text.push(next);
        new = vec![next];
    }
    Ok(text)
}

/// The cost of a decoding loop.
struct Speed {
    tokens_per_s: f64,
    /// The allocations of all steps.
    allocations: usize,
    /// The number of the scheduler's plans.
    plans: usize,
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tokens_per_s, allocations, plans } = self;
        write!(f, "{tokens_per_s:.0} tokens a second; {allocations} allocations and {plans} plan in {STEPS} steps")
    }
}

/// Times decoding steps: each builds, allocates and computes a graph for one token, and picks the next one.
fn speed(model: &Model<'_>, prompt: &[i32]) -> Result<Speed> {
    let memory = cache::memory(model.config(), DType::F16)?;
    let mut decoder = Decoder::new(model, &memory, sched(NonZeroUsize::MIN)?)?;
    let mut sampler = Sampler::new(TEMPERATURE, 40, 1);
    let mut next = sampler.pick(model.config().last(decoder.read(prompt)?));
    let planned = decoder.plans();
    let mut write = |n| {
        for _ in 0..n {
            next = sampler.pick(decoder.read(&[next])?);
        }
        Ok::<_, anyhow::Error>(())
    };
    write(BEFORE)?;
    let (start, before) = (Instant::now(), counted::allocations());
    write(STEPS)?;
    let (allocations, seconds) = (counted::allocations() - before, start.elapsed().as_secs_f64());
    Ok(Speed { tokens_per_s: f64::from(STEPS) / seconds, allocations, plans: decoder.plans() - planned })
}
