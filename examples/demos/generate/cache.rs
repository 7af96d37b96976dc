//! The KV cache and the decoding loop: one pass over the new tokens.
//!
//! A step's graph always has the same shape: the row indices of the new keys are an input, and so is the mask over the
//! cache. So the scheduler plans once, and a step allocates nothing.
//!
//! The cache is a ring buffer: beyond its end, a token replaces the one that just left the window. That works because
//! `RoPE` rotates keys by position, and only differences of positions matter.

use anyhow::{Result, ensure};
use ggml::{Context, DType, Device, Sched, State, Tensor, WeightsBuilder};
use half::f16;

use crate::kv::Cache;
use crate::model::{Config, Inputs, Model};

/// Allocates the KV cache of a model, with rows of this type.
pub(crate) fn memory(config: Config, dtype: DType) -> Result<State> {
    let mut builder = WeightsBuilder::new();
    let shape = [i64::try_from(config.width)?, i64::try_from(config.window)?];
    for layer in 0..config.layers {
        builder.tensor(&format!("k.{layer}"), dtype, shape)?;
        builder.tensor(&format!("v.{layer}"), dtype, shape)?;
    }
    Ok(builder.place_state(Device::cpu()?.buffer_type())?)
}

/// Whether a token attends to another one; both are given by position.
pub(crate) fn looks(window: usize, from: usize, at: usize) -> bool {
    at <= from && from - at < window
}

/// The mask value: 0 if the position is visible, negative infinity otherwise.
pub(crate) fn mask(looks: bool) -> f16 {
    if looks { f16::ZERO } else { f16::NEG_INFINITY }
}

/// Reads tokens, and predicts the next token after each.
pub(crate) struct Decoder<'m> {
    model: &'m Model<'m>,
    cache: Vec<[Tensor<'m>; 2]>,
    ctx: Context,
    sched: Sched,
    /// The number of tokens read so far.
    position: usize,
    /// Input and output buffers of a step, reused by the next one.
    positions: Vec<i32>,
    rows: Vec<i64>,
    mask: Vec<f16>,
    logits: Vec<f32>,
}

impl<'m> Decoder<'m> {
    /// A decoder that has read nothing. `memory` is the result of [`memory`] for the model.
    pub(crate) fn new(model: &'m Model<'m>, memory: &'m State, sched: Sched) -> Result<Self> {
        let layer = |i| Ok([memory.tensor(&format!("k.{i}"))?, memory.tensor(&format!("v.{i}"))?]);
        Ok(Self {
            model,
            cache: (0..model.config().layers).map(layer).collect::<Result<_>>()?,
            ctx: Context::new(),
            sched,
            position: 0,
            positions: Vec::new(),
            rows: Vec::new(),
            mask: Vec::new(),
            logits: Vec::new(),
        })
    }

    /// The number of plans that the scheduler made.
    pub(crate) fn plans(&self) -> usize {
        self.sched.plans()
    }

    /// Reads more tokens, and returns the logits after each of them.
    ///
    /// # Errors
    /// If there is no token, or if several tokens wrap around the end of the ring: the first of them would attend to
    /// entries that the last of them has overwritten.
    pub(crate) fn read(&mut self, tokens: &[i32]) -> Result<&[f32]> {
        let Config { vocabulary, window, .. } = self.model.config();
        let (n, first) = (tokens.len(), self.position);
        ensure!(n == 1 || (n > 1 && first + n <= window), "can't read {n} tokens at once behind {first} of {window}");
        self.fill(first, n, window)?;
        self.logits.resize(n * vocabulary, 0.0);

        self.ctx.reset();
        let inputs = Inputs::new(&self.ctx, n, 1, window)?;
        let rows = self.ctx.input("rows", DType::I64, [i64::try_from(n)?])?;
        let logits = self.model.forward(&self.ctx, &inputs, Some(&Cache { layers: &self.cache, rows }))?;
        let graph = self.ctx.graph([logits])?;
        let mask = (inputs.mask, &self.mask);
        let values = ((inputs.tokens, tokens), (inputs.positions, &self.positions), mask, (rows, &self.rows));
        let run = self.sched.run(&graph, values)?;
        run.get_into(logits, &mut self.logits)?;
        self.position = first + n;
        Ok(&self.logits)
    }

    /// Fills in the positions, row indices and mask of `n` tokens from `first` on.
    fn fill(&mut self, first: usize, n: usize, window: usize) -> Result<()> {
        self.positions.clear();
        self.rows.clear();
        self.mask.clear();
        let end = first + n;
        for at in first..end {
            self.positions.push(i32::try_from(at)?);
            self.rows.push(i64::try_from(at % window)?);
            // The last token whose key is in this row, if any.
            let token_of = |row: usize| (end - 1).checked_sub((end - 1 + window - row) % window);
            let seen = |row| token_of(row).is_some_and(|key| looks(window, at, key));
            self.mask.extend((0..window).map(|row| mask(seen(row))));
        }
        Ok(())
    }
}
