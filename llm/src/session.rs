//! Sessions: sequences of tokens, computed batch by batch.

use std::ops::Range;
use std::sync::Arc;

use ggml::{DType, Device, Sched, Threads};

use crate::batch::Batch;
use crate::cache::{BUCKET, KvCache, MAX_SEQUENCES};
use crate::config::Attention;
use crate::digest::digest;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::model::Model;
use crate::options::setters;
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

setters!(SessionOptions {
    with_n_ctx(n_ctx: usize);
    with_n_seq(n_seq: usize);
    with_n_batch(n_batch: usize);
    with_cache(cache: DType);
    with_threads(threads: usize);
});

/// The longest context if none is asked for.
const USUAL_CONTEXT: usize = 4096;

/// A computation with a model: sequences of tokens, with their keys and values.
#[derive(Debug)]
pub struct Session {
    model: Arc<Model>,
    memory: Memory,
    steps: Steps,
    n_ctx: usize,
    cache: DType,
    /// The logits or embeddings of the last batch, and of how many tokens.
    outputs: Vec<f32>,
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
        within("n_seq", n_seq, 1..MAX_SEQUENCES + 1, "1 to 64")?;
        within("n_batch", n_batch, 1..1 << 20, "1 to 2^20 - 1")?;
        within("n_ctx", options.n_ctx, 0..1 << 28, "below 2^28")?;
        let n_ctx = if options.n_ctx == 0 { config.n_ctx_train.min(USUAL_CONTEXT) } else { options.n_ctx };
        let n_ctx = n_ctx.next_multiple_of(BUCKET);
        if let Some(attention) = &config.attention {
            check_cache(attention, cache)?;
        }
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
        Ok(Self { model, memory, steps, n_ctx, cache, outputs: Vec::new(), n_outputs: 0 })
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

    /// How many tokens still fit, of all sequences together; `None` if nothing limits them, as in recurrent models.
    pub fn room(&self) -> Option<usize> {
        self.memory.kv.as_ref().map(|kv| kv.cells.free())
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
        self.compute(batch, false, proceed)
    }

    /// [`Session::decode`] that computes embeddings instead of logits: what the last layer makes of each token with output,
    /// after the norm. [`Session::embedding`] has them.
    ///
    /// # Errors
    ///
    /// As [`Session::decode`].
    pub fn embed(&mut self, batch: &Batch) -> Result<()> {
        self.compute(batch, true, &mut |_| true)
    }

    fn compute(&mut self, batch: &Batch, embeddings: bool, proceed: &mut dyn FnMut(usize) -> bool) -> Result<()> {
        self.check(batch)?;
        self.steps.embeddings = embeddings;
        self.n_outputs = batch.entries.iter().filter(|e| e.output).count();
        self.outputs.resize(self.n_outputs * self.output_len(), 0.0);
        let (steps, memory, outputs) = (&mut self.steps, &mut self.memory, &mut self.outputs);
        let result = steps.decode(&self.model, memory, batch, outputs, proceed);
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
                // Positions are below 2^31.
                let length = self.memory.length(entry.sequence)?;
                if i32::try_from(batch.len()).ok().and_then(|n| length.checked_add(n)).is_none() {
                    return Err(Error::sequence(entry.sequence, format!("it has {length} tokens, and no more fit")));
                }
            } else {
                let token = entry.token;
                return Err(Error::batch(format!("token {i} is {token}, but the vocabulary has {n_vocab} tokens")));
            }
        }
        Ok(())
    }

    /// The logits of the last batch's `i`-th token with output, a number for each token of the vocabulary.
    pub fn logits(&self, i: usize) -> Option<&[f32]> {
        self.output(i).filter(|_| !self.steps.embeddings)
    }

    /// The embedding of the last batch's `i`-th token with output, a number for each of the model's dimensions, after
    /// [`Session::embed`].
    pub fn embedding(&self, i: usize) -> Option<&[f32]> {
        self.output(i).filter(|_| self.steps.embeddings)
    }

    fn output(&self, i: usize) -> Option<&[f32]> {
        let size = self.output_len();
        self.outputs.get(i * size..(i + 1) * size).filter(|_| i < self.n_outputs)
    }

    fn output_len(&self) -> usize {
        if self.steps.embeddings { self.model.config().n_embd } else { self.model.config().n_vocab }
    }

    /// [`Session::logits`], to be changed by a sampler.
    pub fn logits_mut(&mut self, i: usize) -> Option<&mut [f32]> {
        let (size, there) = (self.output_len(), i < self.n_outputs && !self.steps.embeddings);
        self.outputs.get_mut(i * size..(i + 1) * size).filter(|_| there)
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
        self.memory.save(sequence, self.owner()?)
    }

    /// Makes an empty sequence what [`Session::save`] returned, in a session of the same file with the same type of cache.
    ///
    /// The bytes may come from anywhere: damaged ones, and those of other files, are refused. Bytes that somebody made up
    /// for this file are a sequence with made-up keys and values.
    ///
    /// # Errors
    ///
    /// [`Error::Saved`] if the bytes don't fit; [`Error::Sequence`] if the sequence is not empty; [`Error::Full`];
    /// [`Error::Ggml`] if a device fails.
    pub fn restore(&mut self, sequence: usize, bytes: &[u8]) -> Result<()> {
        self.memory.restore(sequence, self.owner()?, bytes)
    }

    /// What saved sequences of this session belong to.
    fn owner(&self) -> Result<u64> {
        let model = self.model.digest(self.n_ctx)?;
        Ok(digest(model, self.cache.name().as_bytes()))
    }
}

/// Types of keys and values that can be written row by row, and that attention reads.
const CACHES: &[DType] = &[
    DType::F16,
    DType::F32,
    DType::BF16,
    DType::Q8_0,
    DType::Q5_1,
    DType::Q5_0,
    DType::Q4_1,
    DType::Q4_0,
    DType::IQ4_NL,
];

/// Checks that heads can be of this type.
fn check_cache(attention: &Attention, cache: DType) -> Result<()> {
    let wrong = |expected| Err(Error::Options { name: "cache", value: cache.name().into(), expected });
    if !CACHES.contains(&cache) {
        return wrong("one of f16, f32, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 and iq4_nl");
    }
    let block = usize::try_from(cache.block_size()).unwrap_or(usize::MAX);
    if [attention.n_embd_head_k, attention.n_embd_head_v].iter().all(|size| size.is_multiple_of(block)) {
        return Ok(());
    }
    wrong("a type whose blocks divide the heads of this model, such as f16")
}

/// A scheduler over the model's devices, with the CPU last.
fn sched(model: &Model, threads: usize) -> Result<Sched> {
    let cpu = Device::cpu()?;
    let mut backend = cpu.init()?;
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { all } else { threads };
    // All of them for the smallest model, too: with as many, the bits are llama.cpp's.
    backend.set_threads(Threads::new(threads).with_all(true))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::Recipe;
    use crate::memory::pack;
    use crate::{Architecture, ModelOptions};

    fn session(architecture: Architecture) -> Session {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.gguf");
        let mut recipe = Recipe::new(architecture);
        (recipe.n_layer, recipe.n_embd, recipe.n_ff, recipe.n_head, recipe.n_vocab) = (1, 64, 64, 4, 40);
        recipe.write(&file).unwrap();
        let model = Model::load(&file, &ModelOptions::default()).unwrap();
        let mut options = SessionOptions::default();
        (options.n_ctx, options.threads) = (256, 1);
        Session::new(model, &options).unwrap()
    }

    /// Bytes with the right owner and digest, made by somebody who lies about what is in them.
    #[test]
    fn saved_sequences_are_not_believed() {
        for architecture in [Architecture::Llama, Architecture::Mamba2] {
            let mut session = session(architecture);
            let owner = session.owner().unwrap();
            let empty = session.save(0).unwrap();
            let body = empty.get(28..).unwrap();
            let token = session.memory.kv.as_ref().map_or(0, KvCache::token_len);
            for (length, body) in [
                (8_000_000, body.to_vec()),
                (i32::MAX, body.to_vec()),
                (257, vec![0; 257 * token]),
                (2, vec![0; token + body.len()]),
                (1, vec![0; token + body.len() + 4]),
                (0, vec![0; body.len() + 1]),
            ] {
                let restored = session.restore(0, &pack(owner, length, &body));
                let Ok(()) = restored else {
                    assert!(matches!(restored, Err(Error::Saved(_) | Error::Full { .. })), "{length}: {restored:?}");
                    assert_eq!(session.len(0).unwrap(), 0);
                    continue;
                };
                // A recurrent state has the same size after any number of tokens: that many more must still fit.
                assert!(session.memory.kv.is_none() && session.len(0).unwrap() == usize::try_from(length).unwrap());
                let mut batch = Batch::new();
                batch.prompt(0, &[1, 2]);
                let result = session.decode(&batch);
                assert!(result.is_ok() == (length < i32::MAX), "{length}: {result:?}");
                session.truncate(0, 0).unwrap();
            }
            let mut batch = Batch::new();
            batch.prompt(0, &[1, 2]);
            session.decode(&batch).unwrap();
        }
    }
}
