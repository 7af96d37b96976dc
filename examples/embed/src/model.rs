//! A BERT encoder: its file, its weights on the devices, and batches of sentences.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use ggml::gguf::Load as _;
use ggml::gguf::{Reader, TensorInfo, Value};
use ggml::{BufferType, Context, Device, DeviceType, LeafInfo, Run, Sched, Weights};
use half::f16;
use indicatif::{ProgressBar, ProgressStyle};

use crate::config::Config;
use crate::encoder::{Batch, Shape};
use crate::layer::Layer;

/// The maximum number of tokens per batch with our own kernels, so that activations fit into the processor's caches.
const CACHED: usize = 512;

/// The devices with these names, in the order of the layers they hold.
///
/// # Errors
/// If there is no device of a name.
pub fn devices(names: &[String]) -> Result<Vec<Device>> {
    names.iter().map(|name| Ok(Device::by_name(name)?)).collect()
}

/// The kernels that compute the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernels {
    /// Kernels of our own where layers are on the CPU, else those of ggml
    Own,
    /// Operations of ggml
    Ggml,
    /// Operations of ggml, with attention as one
    Flash,
}

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    config: Config,
    weights: Weights,
    /// The layers that our own kernels compute.
    layers: Vec<Option<Layer>>,
    sched: Sched,
    flash: bool,
    /// The text of its `tokenizer.json`.
    tokenizer: String,
}

impl Model {
    /// Opens a file, and distributes its layers over the devices.
    ///
    /// # Errors
    /// If the file can't be read or contains something else, or if a device has not enough memory.
    pub fn open(path: &Path, devices: &[Device], threads: NonZeroUsize, by: Kernels) -> Result<Self> {
        let mut file = Reader::open(path)?;
        let config = Config::read(&file)?;
        let tokenizer = file.metadata("tokenizer.huggingface.json").and_then(Value::as_str);
        let tokenizer = tokenizer.context("the file has no tokenizer")?.to_owned();
        let cpu = Device::cpu()?;
        let holder = |layer: usize| devices.get(layer * devices.len() / config.layers).copied().unwrap_or(cpu);
        let own = |layer| by == Kernels::Own && kernels::any() && holder(layer) == cpu;
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template("weights {wide_bar} {bytes}/{total_bytes}")?);
        let mut places = HashMap::new();
        for t in file.tensors() {
            let layer = t.name().strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let memory = match layer.and_then(|(layer, _)| layer.parse().ok()) {
                Some(layer) if own(layer) => continue,
                Some(layer) => fastest(holder(layer), t)?,
                // Embedding tables are large, and little is computed with them.
                None => cpu.buffer_type(),
            };
            places.insert(t.name().to_owned(), memory);
        }
        let place = |leaf: &LeafInfo| places.get(leaf.name()).copied();
        let weights = file.stream(place, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        let layers = (0..config.layers).map(|i| own(i).then(|| Layer::read(&mut file, &config, i)).transpose());
        let layers = layers.collect::<Result<_>>()?;
        Ok(Self {
            weights,
            layers,
            sched: sched(devices, cpu, threads)?,
            flash: by == Kernels::Flash,
            tokenizer,
            config,
        })
    }

    /// Its hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The text of its `tokenizer.json`.
    pub fn tokenizer(&self) -> &str {
        &self.tokenizer
    }

    /// The vectors of sentences, in their order, each of length 1. `done` gets the size of each finished batch.
    ///
    /// # Errors
    /// A sentence has no tokens, too many, or an unknown one, or a device fails.
    pub fn embed(
        &mut self,
        sentences: &[Vec<i32>],
        batch: NonZeroUsize,
        mut done: impl FnMut(usize),
    ) -> Result<Vec<Vec<f32>>> {
        let width = usize::try_from(self.config.width)?;
        let mut vectors = Vec::with_capacity(sentences.len());
        self.each_batch(sentences, batch, |run, graph, batch| {
            run.compute()?;
            let found = run.get::<f32>(graph.vectors)?;
            vectors.extend(batch.iter().zip(found.chunks_exact(width)).map(|(&(i, _), v)| (i, v.to_vec())));
            done(batch.len());
            Ok(())
        })?;
        vectors.sort_by_key(|&(i, _)| i);
        Ok(vectors.into_iter().map(|(_, vector)| vector).collect())
    }

    /// Calls a closure with each batch of sentences, ready to be computed.
    ///
    /// Sentences are sorted by length, so that a batch needs little padding.
    ///
    /// # Errors
    /// As [`Model::embed`], and those of `compute`.
    pub fn each_batch(
        &mut self,
        sentences: &[Vec<i32>],
        batch: NonZeroUsize,
        mut compute: impl FnMut(&mut Run<'_, '_>, &Batch<'_>, &[Placed<'_>]) -> Result<()>,
    ) -> Result<()> {
        let most = self.config.max_tokens;
        let fits = sentences.iter().all(|s| (1..=most).contains(&s.len()));
        ensure!(fits, "sentences must have 1 to {most} tokens");
        let mut sorted: Vec<_> = sentences.iter().enumerate().collect();
        // The largest batch comes first: later ones fit into its memory.
        sorted.sort_by_key(|(_, s)| Reverse(s.len()));
        let batches: Vec<_> = self.batches(&sorted, batch).collect();
        // Batches of equal shape are adjacent, and share a graph.
        for batches in batches.chunk_by(|a, b| shape(a) == shape(b)) {
            let Some(shape) = batches.first().map(|batch| shape(batch)) else { continue };
            let ctx = Context::new();
            let graph = Batch::new(&ctx, &self.weights, &self.layers, &self.config, shape, self.flash)?;
            let mut run = self.sched.alloc(&graph.graph)?;
            for batch in batches {
                let inputs = Inputs::new(batch, shape);
                run.set(graph.tokens, &inputs.tokens)?;
                run.set(graph.positions, &inputs.positions)?;
                run.set(graph.segment, &[0_i32])?;
                run.set(graph.shares, &inputs.shares)?;
                if let Some(mask) = graph.mask {
                    run.set(mask, &inputs.mask)?;
                }
                compute(&mut run, &graph, batch)?;
            }
        }
        Ok(())
    }

    /// Divides sentences, longest first, into batches.
    fn batches<'s, 'a>(
        &self,
        mut sorted: &'s [Placed<'a>],
        batch: NonZeroUsize,
    ) -> impl Iterator<Item = &'s [Placed<'a>]> {
        let most_tokens = if self.layers.iter().any(Option::is_some) { CACHED } else { usize::MAX };
        std::iter::from_fn(move || {
            let (_, longest) = sorted.first()?;
            let most = (most_tokens / longest.len()).clamp(1, batch.get());
            sorted.split_off(..most.min(sorted.len()))
        })
    }
}

/// The buffer type for a layer's weights on a device: a repacking one if possible.
fn fastest(device: Device, t: &TensorInfo) -> Result<BufferType> {
    for memory in device.extra_buffer_types()? {
        if memory.holds(t.dtype(), t.shape())? {
            return Ok(memory);
        }
    }
    Ok(device.buffer_type())
}

/// A scheduler over the devices, with the CPU as fallback.
fn sched(devices: &[Device], cpu: Device, threads: NonZeroUsize) -> Result<Sched> {
    let mut started = Vec::new();
    let mut builder = Sched::builder().op_offload(false);
    for &device in devices.iter().filter(|&&device| device != cpu).chain([&cpu]) {
        if started.contains(&device) {
            continue;
        }
        started.push(device);
        let mut backend = device.init().with_context(|| format!("device {device} does not start"))?;
        if device.device_type() == DeviceType::Cpu {
            backend.set_threads(threads.get())?;
        }
        builder = builder.backend(backend);
    }
    Ok(builder.build()?)
}

/// A sentence and its original index.
pub type Placed<'a> = (usize, &'a Vec<i32>);

/// The shape of a batch.
fn shape(batch: &[Placed<'_>]) -> Shape {
    let lengths = || batch.iter().map(|(_, s)| s.len());
    let tokens = lengths().max().unwrap_or(0);
    Shape { tokens, sentences: batch.len(), padded: lengths().any(|n| n < tokens) }
}

/// The input data of a graph.
struct Inputs {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    /// The attention mask per token.
    mask: Vec<f16>,
    /// The weight of each token in its sentence's mean.
    shares: Vec<f32>,
}

impl Inputs {
    fn new(batch: &[Placed<'_>], shape: Shape) -> Self {
        let mut inputs =
            Self { tokens: vec![], positions: (0..).take(shape.tokens).collect(), mask: vec![], shares: vec![] };
        for (_, sentence) in batch {
            #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
            let share = 1.0 / sentence.len() as f32;
            for i in 0..shape.tokens {
                let token = sentence.get(i).copied();
                // Padding is masked, so any token will do.
                inputs.tokens.push(token.unwrap_or(0));
                inputs.mask.push(token.map_or(f16::NEG_INFINITY, |_| f16::ZERO));
                inputs.shares.push(token.map_or(0.0, |_| share));
            }
        }
        inputs
    }
}
