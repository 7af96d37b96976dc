//! Steps: a batch is divided into parts, each of which is one graph.

use std::cell::RefCell;

use ggml::{Context, DType, Sched, Tensor};

use crate::batch::{Batch, Entry};
use crate::blocks::Build;
use crate::blocks::layer::Layer;
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::model::Model;

/// What computes the parts of batches.
#[derive(Debug)]
pub(crate) struct Steps {
    ctx: Context,
    /// For prompts and for steps: each keeps its own plan, so that a step is given the memory of the last one.
    scheds: [Sched; 2],
    n_batch: usize,
    n_ctx: usize,
    /// Whether the last layer's results are wanted, not logits.
    pub(crate) embeddings: bool,
    part: Part,
    deltas: Vec<i32>,
    /// An empty list with memory for what graphs write.
    written: Vec<Tensor<'static>>,
}

/// The tokens of one graph. Lists keep their memory from one part to the next.
#[derive(Debug, Default)]
struct Part {
    tokens: Vec<i32>,
    /// The sequence and the position of each token.
    places: Vec<(usize, i32)>,
    positions: Vec<i32>,
    cells: Vec<i32>,
    /// The rows of the tokens with output.
    outputs: Vec<i32>,
    /// Where the logits of each go, counted in tokens with output of the whole batch.
    targets: Vec<usize>,
    /// The sequences, each once; with the same number of tokens for recurrent models.
    sequences: Vec<i32>,
    mask: Vec<half::f16>,
    logits: Vec<f32>,
}

impl Part {
    fn clear(&mut self) {
        self.tokens.clear();
        self.places.clear();
        self.positions.clear();
        self.outputs.clear();
        self.targets.clear();
        self.sequences.clear();
    }

    /// Adds a token; `target` counts tokens with output.
    fn push(&mut self, entry: Entry, position: i32, target: usize) {
        if entry.output {
            self.outputs.push(i32::try_from(self.tokens.len()).unwrap_or(i32::MAX));
            self.targets.push(target);
        }
        self.tokens.push(entry.token);
        self.places.push((entry.sequence, position));
        self.positions.push(position);
    }
}

impl Steps {
    pub(crate) fn new(scheds: [Sched; 2], n_batch: usize, n_ctx: usize) -> Self {
        Self {
            ctx: Context::new(),
            scheds,
            n_batch,
            n_ctx,
            embeddings: false,
            part: Part::default(),
            deltas: Vec::new(),
            written: Vec::new(),
        }
    }

    pub(crate) fn plans(&self) -> usize {
        self.scheds.iter().map(Sched::plans).sum()
    }

    /// The list that [`Steps::rotate`] reads.
    pub(crate) fn deltas(&mut self) -> &mut Vec<i32> {
        &mut self.deltas
    }

    /// Computes a batch whose tokens were checked; `logits` has room for all wanted.
    pub(crate) fn decode(
        &mut self,
        model: &Model,
        memory: &mut Memory,
        batch: &Batch,
        logits: &mut [f32],
        proceed: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        let mut next = |computed| {
            let total = batch.len();
            if proceed(computed) { Ok(()) } else { Err(Error::Stopped { computed, total }) }
        };
        if let Some(kv) = &memory.kv {
            kv.cells.check_free(batch.len())?;
        }
        if memory.recurrent.is_some() && !batch.has_each_sequence_once() {
            return self.decode_recurrent(model, memory, batch, logits, &mut next);
        }
        let mut target = 0;
        for (i, entries) in batch.entries.chunks(self.n_batch).enumerate() {
            next(i * self.n_batch)?;
            self.part.clear();
            for &entry in entries {
                self.part.sequences.push(i32::try_from(entry.sequence).unwrap_or(i32::MAX));
                self.add(memory, entry, target)?;
                target += usize::from(entry.output);
            }
            self.run(model, memory, logits)?;
        }
        Ok(())
    }

    /// Recurrent layers take the same number of tokens of each sequence.
    fn decode_recurrent(
        &mut self,
        model: &Model,
        memory: &mut Memory,
        batch: &Batch,
        logits: &mut [f32],
        next: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let mut sequences: Vec<usize> = batch.entries.iter().map(|e| e.sequence).collect();
        sequences.sort_unstable();
        sequences.dedup();
        // For each sequence the entries that are left, with their targets.
        let mut left: Vec<Vec<(Entry, usize)>> = vec![Vec::new(); sequences.len()];
        let mut target = 0;
        for &entry in batch.entries.iter().rev() {
            let Some(list) = sequences.binary_search(&entry.sequence).ok().and_then(|i| left.get_mut(i)) else {
                continue;
            };
            target += usize::from(entry.output);
            list.push((entry, target));
        }
        let outputs = target;
        while !left.is_empty() {
            next(batch.len() - left.iter().map(Vec::len).sum::<usize>())?;
            let most = (self.n_batch / left.len()).max(1);
            let n = left.iter().map(Vec::len).min().unwrap_or(0).min(most);
            self.part.clear();
            for list in &mut left {
                for (i, (entry, from_end)) in list.drain(list.len() - n..).rev().enumerate() {
                    if i == 0 {
                        self.part.sequences.push(i32::try_from(entry.sequence).unwrap_or(i32::MAX));
                    }
                    self.add(memory, entry, outputs - from_end)?;
                }
            }
            self.run(model, memory, logits)?;
            left.retain(|list| !list.is_empty());
        }
        Ok(())
    }

    fn add(&mut self, memory: &mut Memory, entry: Entry, target: usize) -> Result<()> {
        let position = memory.length(entry.sequence)?;
        self.part.push(entry, position, target);
        memory.set_length(entry.sequence, position + 1);
        Ok(())
    }

    /// Computes the part; a failure gives its cells back.
    fn run(&mut self, model: &Model, memory: &mut Memory, logits: &mut [f32]) -> Result<()> {
        if let Some(kv) = &mut memory.kv {
            kv.cells.take(self.part.places.iter().copied(), &mut self.part.cells)?;
        }
        let result = self.compute(model, memory, logits);
        if result.is_err() {
            if let Some(kv) = &mut memory.kv {
                kv.cells.give_back(&self.part.cells);
            }
            for &(sequence, position) in self.part.places.iter().rev() {
                memory.set_length(sequence, position);
            }
        }
        result
    }

    fn compute(&mut self, model: &Model, memory: &Memory, logits: &mut [f32]) -> Result<()> {
        self.ctx.reset();
        let Self { ctx, scheds: [prompts, steps], part, n_ctx, written, embeddings, .. } = self;
        let is_step = part.tokens.len() <= memory.lengths.len();
        let sched = if is_step { steps } else { prompts };
        let ctx = &*ctx;
        let n_tokens = part.tokens.len();
        let mut read = memory.kv.as_ref().map_or(0..0, |kv| kv.to_read(part.places.iter().copied()));
        if model.placing().is_parallel() {
            read.start = 0; // each device has a part of a row, so it is elsewhere that a view would begin
        }
        let tokens = Decoder::tokens(ctx, n_tokens)?;
        // ggml can't end a graph with what is written to a cache that is divided among CPUs.
        let unread = part.outputs.is_empty() && model.placing().is_parallel();
        if unread {
            part.outputs.push(0);
        }
        let outputs = match part.outputs.len() {
            0 => None,
            n => Some(ctx.input("outputs", DType::I32, [n])?),
        };
        let build = Build {
            ctx,
            weights: model.weights(),
            config: model.config(),
            kv: memory.kv.as_ref().map(|kv| kv.tensors(ctx, n_tokens, read.clone())).transpose()?,
            states: memory.recurrent.as_ref().map(|r| r.tensors(ctx, part.sequences.len())).transpose()?,
            outputs,
            n_tokens,
            n_ctx: *n_ctx,
            written: RefCell::new(emptied(std::mem::take(written))),
        };
        let result = model.decoder().apply(&build, tokens, *embeddings)?;
        let mut outcome = build.written.take();
        outcome.extend(result);
        let graph = ctx.graph(&outcome)?;
        *written = emptied(outcome);
        let mut run = sched.alloc(&graph)?;
        run.set(tokens, &part.tokens)?;
        if let Some(outputs) = outputs {
            run.set(outputs, &part.outputs)?;
        }
        if let (Some(kv), Some(cache)) = (&build.kv, &memory.kv) {
            run.set(kv.positions, &part.positions)?;
            run.set(kv.rows, &part.cells)?;
            // Where nothing is wanted of the last layer, only its keys and values are computed.
            let n_layer = model.config().n_layer - usize::from(outputs.is_none());
            for (mask, windowed) in kv.masks.into_iter().zip([false, true]) {
                // A model may have a window in all layers, or in none.
                if let Some(mask) = mask.filter(|_| model.config().has_layers(n_layer, windowed)) {
                    cache.fill_mask(part.places.iter().copied(), read.clone(), windowed, &mut part.mask);
                    run.set(mask, &part.mask)?;
                }
            }
        }
        if let Some(states) = &build.states {
            run.set(states.ids, &part.sequences)?;
        }
        run.compute()?;
        let Some(result) = result.filter(|_| !unread) else { return Ok(()) };
        let size = if *embeddings { model.config().n_embd } else { model.config().n_vocab };
        let first = part.targets.first().copied().unwrap_or(0);
        if part.targets.iter().copied().eq(first..first + part.targets.len()) {
            let to = logits.get_mut(first * size..(first + part.targets.len()) * size);
            return Ok(run.get_into(result, to.unwrap_or_default())?);
        }
        part.logits.resize(part.targets.len() * size, 0.0);
        run.get_into(result, &mut part.logits)?;
        for (row, target) in part.logits.chunks(size).zip(&part.targets) {
            if let Some(to) = logits.get_mut(target * size..(target + 1) * size) {
                to.copy_from_slice(row);
            }
        }
        Ok(())
    }

    /// Rotates the keys in the cache by `deltas`.
    pub(crate) fn rotate(&mut self, model: &Model, memory: &Memory) -> Result<()> {
        let Some(kv) = &memory.kv else { return Ok(()) };
        self.ctx.reset();
        let ctx = &self.ctx;
        let deltas = ctx.input("deltas", DType::I32, [self.deltas.len()])?;
        let mut rotated = Vec::new();
        for (i, layer) in model.decoder().layers.iter().enumerate() {
            if let Layer::Transformer(parts) = layer {
                rotated.push(parts.attention.shift(ctx, model.weights(), kv, i, deltas)?);
            }
        }
        let graph = ctx.graph(rotated)?;
        let [prompts, _] = &mut self.scheds;
        let mut run = prompts.alloc(&graph)?;
        run.set(deltas, &self.deltas)?;
        Ok(run.compute()?)
    }
}

/// The list without its tensors, and with its memory: collecting from a list's own iterator reuses that.
fn emptied<'b>(mut list: Vec<Tensor<'_>>) -> Vec<Tensor<'b>> {
    list.clear();
    list.into_iter().map_while(|_| None).collect()
}
