//! A Llama-like decoder: its weights, and the computation that training, full passes and cached steps share.
//!
//! ```text
//! tokens -> rows of a table                                       [width, tokens]
//! each layer:
//!     h = norm(x)
//!     q, k = rope(W h), v = W h                                   [width, tokens], through the cache if there is one
//!     x = x + W (softmax(k q / sqrt(size) + mask) v)
//!     h = norm(x)
//!     x = x + W (silu(W h) * W h)
//! norm -> the logits of the next token                            [vocabulary, tokens]
//! ```

use anyhow::{Result, ensure};
use ggml::{
    Context, DType, Tensor,
    ops::{FlashAttnOptions, GluOp, RopeMode, SoftMaxOptions},
};

use crate::kv::Cache;

/// Added to the mean square of a norm, so that zero rows stay zero.
pub(crate) const EPS: f32 = 1e-5;

/// The hyperparameters of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Config {
    /// The number of tokens that there are.
    pub(crate) vocabulary: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// The embedding size.
    pub(crate) width: usize,
    /// The inner size of the feed-forward block.
    pub(crate) inner: usize,
    /// The number of tokens that a token attends to, including itself.
    pub(crate) window: usize,
}

impl Config {
    /// # Errors
    /// The sizes are impossible.
    pub(crate) fn check(self) -> Result<Self> {
        let Self { vocabulary, layers, heads, width, inner, window } = self;
        let sizes = [vocabulary, layers, heads, width, inner, window];
        ensure!(sizes.iter().all(|n| (1..=1 << 16).contains(n)), "a model can't have sizes of {sizes:?}");
        // RoPE rotates pairs of values.
        ensure!(width.is_multiple_of(2 * heads), "{width} numbers can't be shared by {heads} heads, in pairs");
        Ok(self)
    }

    /// The logits after the last token.
    pub(crate) fn last(self, logits: &[f32]) -> &[f32] {
        logits.rchunks(self.vocabulary).next().unwrap_or_default()
    }

    /// Names and shapes of all weights; a vector's second dimension is 1. A matrix's first dimension is its input size.
    pub(crate) fn tensors(self) -> Vec<(String, [usize; 2])> {
        let Self { vocabulary, width, inner, .. } = self;
        let mut all = vec![("token_embd.weight".to_owned(), [width, vocabulary])];
        for layer in 0..self.layers {
            let square = [width, width];
            let parts = [
                ("attn_norm", [width, 1]),
                ("attn_q", square),
                ("attn_k", square),
                ("attn_v", square),
                ("attn_output", square),
                ("ffn_norm", [width, 1]),
                ("ffn_gate", [width, inner]),
                ("ffn_up", [width, inner]),
                ("ffn_down", [inner, width]),
            ];
            all.extend(parts.map(|(part, shape)| (format!("blk.{layer}.{part}.weight"), shape)));
        }
        all.push(("output_norm.weight".to_owned(), [width, 1]));
        all.push(("output.weight".to_owned(), [width, vocabulary]));
        all
    }
}

/// Handles of a model's weights, looked up by name once instead of in every step.
#[derive(Debug)]
pub(crate) struct Model<'w> {
    config: Config,
    embedding: Tensor<'w>,
    layers: Vec<Layer<'w>>,
    norm: Tensor<'w>,
    output: Tensor<'w>,
}

#[derive(Debug)]
struct Layer<'w> {
    attn_norm: Tensor<'w>,
    q: Tensor<'w>,
    k: Tensor<'w>,
    v: Tensor<'w>,
    output: Tensor<'w>,
    ffn_norm: Tensor<'w>,
    gate: Tensor<'w>,
    up: Tensor<'w>,
    down: Tensor<'w>,
}

/// The inputs of a pass: sequences of equal length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'c> {
    /// The tokens.
    pub(crate) tokens: Tensor<'c>,
    /// Their positions, the same in each sequence.
    pub(crate) positions: Tensor<'c>,
    /// The mask: per token a row with 0 for each visible key, negative infinity for the others.
    pub(crate) mask: Tensor<'c>,
    /// Tokens of a sequence.
    n: i64,
    sequences: i64,
}

impl<'c> Inputs<'c> {
    /// For `sequences` of `n` tokens each, which attend to `keys` keys.
    pub(crate) fn new(ctx: &'c Context, n: usize, sequences: usize, keys: usize) -> Result<Self> {
        let (n, sequences) = (i64::try_from(n)?, i64::try_from(sequences)?);
        Ok(Self {
            tokens: ctx.input("tokens", DType::I32, [n * sequences])?,
            positions: ctx.input("positions", DType::I32, [n])?,
            mask: ctx.input("mask", DType::F16, [i64::try_from(keys)?, n])?,
            n,
            sequences,
        })
    }
}

impl<'w> Model<'w> {
    /// A model whose weights are looked up by `get`: parameters of a training, or frozen weights of any type.
    pub(crate) fn new(config: Config, get: impl Fn(&str) -> ggml::Result<Tensor<'w>>) -> Result<Self> {
        let layer = |layer| {
            let get = |part| get(&format!("blk.{layer}.{part}.weight"));
            Ok(Layer {
                attn_norm: get("attn_norm")?,
                q: get("attn_q")?,
                k: get("attn_k")?,
                v: get("attn_v")?,
                output: get("attn_output")?,
                ffn_norm: get("ffn_norm")?,
                gate: get("ffn_gate")?,
                up: get("ffn_up")?,
                down: get("ffn_down")?,
            })
        };
        Ok(Self {
            config: config.check()?,
            embedding: get("token_embd.weight")?,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            norm: get("output_norm.weight")?,
            output: get("output.weight")?,
        })
    }

    pub(crate) fn config(&self) -> Config {
        self.config
    }

    /// Builds the graph. The result has a column of logits (over the next token) for each token.
    ///
    /// Without a cache, the keys are those of the sequence itself. With one, keys and values are written to it, and the
    /// keys are the whole cache.
    pub(crate) fn forward<'c>(
        &self,
        ctx: &'c Context,
        inputs: &Inputs<'c>,
        cache: Option<&Cache<'c, '_>>,
    ) -> Result<Tensor<'c>>
    where
        'w: 'c,
    {
        let mut x = ctx.get_rows(self.embedding, inputs.tokens)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let h = norm(ctx, x, layer.attn_norm)?;
            x = ctx.add(x, self.attention(ctx, h, i, layer, inputs, cache)?)?;
            let h = norm(ctx, x, layer.ffn_norm)?;
            let gated = ctx.glu_split(ctx.mul_mat(layer.gate, h)?, ctx.mul_mat(layer.up, h)?, GluOp::Swiglu)?;
            x = ctx.add(x, ctx.mul_mat(layer.down, gated)?)?;
        }
        Ok(ctx.mul_mat(self.output, norm(ctx, x, self.norm)?)?)
    }

    fn attention<'c>(
        &self,
        ctx: &'c Context,
        h: Tensor<'c>,
        i: usize,
        layer: &Layer<'w>,
        inputs: &Inputs<'c>,
        cache: Option<&Cache<'c, '_>>,
    ) -> Result<Tensor<'c>>
    where
        'w: 'c,
    {
        let Config { width, heads, .. } = self.config;
        let size = width / heads;
        let (width, heads, n_dims) = (i64::try_from(width)?, i64::try_from(heads)?, i32::try_from(size)?);
        let split = |x, n, sequences| ctx.reshape(x, [i64::from(n_dims), heads, n, sequences]);
        let turned = |weight| {
            let x = split(ctx.mul_mat(weight, h)?, inputs.n, inputs.sequences)?;
            ctx.rope(x, inputs.positions, n_dims, RopeMode::Normal)
        };
        // [size, heads, tokens, sequences]
        let q = turned(layer.q)?;
        let k = turned(layer.k)?;
        let v = split(ctx.mul_mat(layer.v, h)?, inputs.n, inputs.sequences)?;
        #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
        let scale = (size as f32).sqrt().recip();
        let attended = if let Some(cache) = cache {
            let [k, v] = cache.put(ctx, i, [k, v])?;
            let keys = i64::try_from(self.config.window)?;
            attend_at_once(ctx, [q, split(k, keys, 1)?, split(v, keys, 1)?], inputs.mask, scale)
        } else {
            attend(ctx, [q, k, v], inputs.mask, scale)
        };
        let attended = ctx.reshape(attended?, [width, inputs.n * inputs.sequences])?;
        Ok(ctx.mul_mat(layer.output, attended)?)
    }
}

fn norm<'c>(ctx: &'c Context, x: Tensor<'c>, weight: Tensor<'c>) -> Result<Tensor<'c>> {
    Ok(ctx.mul(ctx.rms_norm(x, EPS)?, weight)?)
}

/// Attention: for each token and head, the weighted mean of the values: `[size, heads, tokens, sequences]`.
fn attend<'c>(ctx: &'c Context, qkv: [Tensor<'c>; 3], mask: Tensor<'c>, scale: f32) -> ggml::Result<Tensor<'c>> {
    let [q, k, v] = qkv;
    // One matrix product per head and sequence.
    let q = ctx.cont(ctx.permute(q, [0, 2, 1, 3])?)?;
    let scores = ctx.mul_mat(ctx.permute(k, [0, 2, 1, 3])?, q)?;
    let how = SoftMaxOptions::new().with_scale(scale).with_mask(mask);
    let scores = ctx.soft_max_ext(scores, how)?;
    // A product sums over the first dimension of both operands, which must be the keys here.
    let v = ctx.cont(ctx.permute(v, [1, 2, 0, 3])?)?;
    ctx.cont(ctx.permute(ctx.mul_mat(v, scores)?, [0, 2, 1, 3])?)
}

/// [`attend`] as one operation. It reads keys and values as stored in the cache, but ggml can't differentiate it.
fn attend_at_once<'c>(
    ctx: &'c Context,
    qkv: [Tensor<'c>; 3],
    mask: Tensor<'c>,
    scale: f32,
) -> ggml::Result<Tensor<'c>> {
    let how = FlashAttnOptions::new(scale).with_mask(mask);
    let [q, k, v] = qkv.map(|x| ctx.permute(x, [0, 2, 1, 3]));
    ctx.flash_attn_ext(q?, k?, v?, how)
}
