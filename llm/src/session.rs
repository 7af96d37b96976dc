//! Sessions: sequences of tokens, computed batch by batch.

use std::ops::Range;
use std::sync::Arc;

use ggml::{DType, Device, Sched};

use crate::batch::Batch;
use crate::cache::{BUCKET, KvCache, MOST_SEQUENCES};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::model::Model;
use crate::recurrent::Recurrent;
use crate::step::Steps;

/// The sizes of a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// The number of tokens that all sequences together can have; 0 for what the model was trained for, 4096 at most.
    pub n_ctx: usize,
    /// The number of sequences.
    pub n_seq: usize,
    /// The number of tokens that are computed at once. Larger batches are divided.
    pub n_batch: usize,
    /// The type of keys and values: `f16`, `f32`, or a block type such as `q8_0`.
    pub cache: DType,
    /// CPU threads; 0 for as many as there are processors.
    pub threads: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { n_ctx: 0, n_seq: 1, n_batch: 512, cache: DType::F16, threads: 0 }
    }
}

/// The longest context if none is asked for.
const USUAL_CONTEXT: usize = 4096;

/// A computation with a model: sequences of tokens, with their keys and values.
#[derive(Debug)]
pub struct Session {
    model: Arc<Model>,
    memory: Memory,
    steps: Steps,
    n_ctx: usize,
    /// The logits of the last batch, and of how many tokens.
    logits: Vec<f32>,
    n_outputs: usize,
}

impl Session {
    /// Makes a session without tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Options`]; [`Error::Ggml`] if a device fails or has too little memory.
    pub fn new(model: Arc<Model>, options: &SessionOptions) -> Result<Self> {
        let SessionOptions { n_seq, n_batch, cache, .. } = *options;
        let config = model.config();
        let within = |name, value: usize, range: Range<usize>, expected| {
            let error = Error::Options { name, value: value.to_string().into(), expected };
            if range.contains(&value) { Ok(()) } else { Err(error) }
        };
        within("n_seq", n_seq, 1..MOST_SEQUENCES + 1, "1 to 64")?;
        within("n_batch", n_batch, 1..1 << 20, "1 to 2^20 - 1")?;
        within("n_ctx", options.n_ctx, 0..1 << 28, "below 2^28")?;
        let n_ctx = if options.n_ctx == 0 { config.n_ctx_train.min(USUAL_CONTEXT) } else { options.n_ctx };
        let n_ctx = n_ctx.next_multiple_of(BUCKET);
        let place = |layer| model.placing().device(layer).buffer_type();
        let kv = match &config.attention {
            Some(attention) => Some(KvCache::new(config, attention, n_ctx, cache, place)?),
            None => None,
        };
        let recurrent = match &config.ssm {
            Some(ssm) => Some(Recurrent::new(config, ssm, n_seq, place)?),
            None => None,
        };
        let memory = Memory { kv, recurrent, lengths: vec![0; n_seq] };
        let steps = Steps::new([sched(&model, options.threads)?, sched(&model, options.threads)?], n_batch, n_ctx);
        Ok(Self { model, memory, steps, n_ctx, logits: Vec::new(), n_outputs: 0 })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The number of tokens that all sequences together can have.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// The number of tokens of a sequence.
    ///
    /// # Errors
    ///
    /// [`Error::Sequence`] if there is no such sequence.
    pub fn len(&self, sequence: usize) -> Result<usize> {
        self.memory.length(sequence).map(|n| usize::try_from(n).unwrap_or(0))
    }

    /// How many plans the scheduler has made: see [`ggml::Sched::plans`].
    pub fn plans(&self) -> usize {
        self.steps.plans()
    }

    /// Computes the tokens of a batch, which continue their sequences.
    ///
    /// # Errors
    ///
    /// [`Error::Batch`] if a token is not in the vocabulary, or if there are none; [`Error::Sequence`];
    /// [`Error::Full`] if the cache has too few free cells; [`Error::Ggml`] if a device fails. If there is an error
    /// before anything is computed, the session is unchanged. A batch that fails later has lost its sequences' tokens
    /// from the point of failure on.
    pub fn decode(&mut self, batch: &Batch) -> Result<()> {
        self.decode_while(batch, &mut |_| true)
    }

    /// [`Session::decode`] that calls `proceed` before each `n_batch` tokens, with the number of those computed so far, and stops
    /// if it returns `false`.
    ///
    /// # Errors
    ///
    /// As [`Session::decode`]; [`Error::Stopped`], after which the session has the tokens that were computed, and no logits.
    pub fn decode_while(&mut self, batch: &Batch, proceed: &mut dyn FnMut(usize) -> bool) -> Result<()> {
        self.check(batch)?;
        let n_vocab = self.model.config().n_vocab;
        self.n_outputs = batch.entries.iter().filter(|e| e.output).count();
        self.logits.resize(self.n_outputs * n_vocab, 0.0);
        let (steps, memory, logits) = (&mut self.steps, &mut self.memory, &mut self.logits);
        let result = steps.decode(&self.model, memory, batch, logits, proceed);
        if result.is_err() {
            self.n_outputs = 0;
        }
        result
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        let n_vocab = self.model.config().n_vocab;
        if batch.is_empty() {
            return Err(Error::batch("it has no tokens"));
        }
        for (i, entry) in batch.entries.iter().enumerate() {
            if usize::try_from(entry.token).is_ok_and(|t| t < n_vocab) {
                self.memory.length(entry.sequence)?;
            } else {
                let token = entry.token;
                return Err(Error::batch(format!("token {i} is {token}, but the vocabulary has {n_vocab} tokens")));
            }
        }
        Ok(())
    }

    /// The logits of the last batch's `i`-th token with output, a number for each token of the vocabulary.
    pub fn logits(&self, i: usize) -> Option<&[f32]> {
        let n_vocab = self.model.config().n_vocab;
        self.logits.get(i * n_vocab..(i + 1) * n_vocab).filter(|_| i < self.n_outputs)
    }

    /// [`Session::logits`], to be changed by a sampler.
    pub fn logits_mut(&mut self, i: usize) -> Option<&mut [f32]> {
        let (n_vocab, there) = (self.model.config().n_vocab, i < self.n_outputs);
        self.logits.get_mut(i * n_vocab..(i + 1) * n_vocab).filter(|_| there)
    }

    /// Removes a sequence's tokens from a position on; 0 for all.
    ///
    /// # Errors
    ///
    /// [`Error::Sequence`] if there is no such sequence, or if it is recurrent, and not all tokens are removed.
    pub fn truncate(&mut self, sequence: usize, position: usize) -> Result<()> {
        self.memory.remove(sequence, i32::try_from(position).unwrap_or(i32::MAX)..i32::MAX)
    }

    /// Makes the first `n` tokens of one sequence the beginning of another, which is empty. Both share the cells.
    ///
    /// # Errors
    ///
    /// [`Error::Sequence`] if there are no such sequences, one has fewer tokens or the other has some, or if they are
    /// recurrent, and not all tokens are copied.
    pub fn share(&mut self, from: usize, to: usize, n: usize) -> Result<()> {
        self.memory.copy(from, to, i32::try_from(n).unwrap_or(i32::MAX))
    }

    /// Shifts a sequence's context: removes `n` tokens after the first `keep`, and moves the later ones to their place.
    ///
    /// # Errors
    ///
    /// [`Error::Sequence`] if there is no such sequence, if it has fewer tokens, is recurrent, or shares its later tokens
    /// with another sequence, or if the cache is divided among devices; [`Error::Ggml`] if a device fails.
    pub fn shift(&mut self, sequence: usize, keep: usize, n: usize) -> Result<()> {
        let length = self.memory.length(sequence)?;
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let end = int(keep.saturating_add(n));
        if end > length {
            return Err(Error::sequence(sequence, format!("it has {length} tokens; {keep} and {n} are more")));
        }
        if self.memory.recurrent.is_some() {
            return Err(Error::sequence(sequence, "a recurrent state can't forget some of its tokens"));
        }
        if self.model.placing().is_parallel() {
            return Err(Error::sequence(sequence, "a cache that is divided among devices can't be shifted"));
        }
        let Some(kv) = &mut self.memory.kv else { return Ok(()) };
        // First what can be refused; the tokens between are removed by position, which no other token has then.
        kv.cells.check_unshared(sequence, end..length)?;
        kv.cells.remove(sequence, int(keep)..end);
        kv.cells.shift(sequence, end..length, -int(n), self.steps.deltas());
        self.memory.set_length(sequence, length - int(n));
        self.steps.rotate(&self.model, &self.memory)
    }

    /// The bytes of a sequence, for [`Session::restore`].
    ///
    /// # Errors
    ///
    /// [`Error::Sequence`] if there is no such sequence; [`Error::Ggml`] if a device fails.
    pub fn save(&self, sequence: usize) -> Result<Vec<u8>> {
        self.memory.save(sequence)
    }

    /// Makes an empty sequence what [`Session::save`] returned, in a session of the same model with the same type of
    /// cache.
    ///
    /// # Errors
    ///
    /// [`Error::Saved`] if the bytes don't fit; [`Error::Sequence`] if the sequence is not empty; [`Error::Full`];
    /// [`Error::Ggml`] if a device fails.
    pub fn restore(&mut self, sequence: usize, bytes: &[u8]) -> Result<()> {
        self.memory.restore(sequence, bytes)
    }
}

/// A scheduler over the model's devices, with the CPU last.
fn sched(model: &Model, threads: usize) -> Result<Sched> {
    let cpu = Device::cpu()?;
    let mut backend = cpu.init()?;
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { all } else { threads };
    backend.set_threads(threads)?;
    let mut builder = Sched::builder();
    let mut seen = vec![cpu];
    for &device in &model.placing().devices {
        if !seen.contains(&device) {
            seen.push(device);
            let mut backend = device.init()?;
            if model.placing().members.contains(&cpu) {
                backend.set_threads(threads)?;
            }
            builder = builder.backend(backend);
        }
    }
    Ok(builder.backend(backend).build()?)
}
