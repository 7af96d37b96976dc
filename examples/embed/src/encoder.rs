//! The encoder as a ggml graph, built once per batch shape.
//!
//! ```text
//! tokens -> word + position + segment -> norm         [width, tokens, sentences]
//! each layer:
//!     attention: q, k, v, softmax(k q / sqrt(size)) v   one batch of matrices for each head of each sentence
//!     x = norm(x + attention)
//!     x = norm(x + down(gelu(up(x))))
//! mean over the tokens of a sentence, length 1         [width, sentences]
//! ```

use anyhow::Result;
use ggml::{
    Context, DType, Graph, Tensor, Weights,
    ops::{FlashAttnOptions, SoftMaxOptions},
};

use crate::config::Config;
use crate::layer::Layer;

/// The minimum length of a mean for the normalisation, so that a zero vector stays zero.
const LEAST_LENGTH: f32 = 1e-12;

/// The shape of a batch, which determines its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Of the longest sentence.
    pub tokens: usize,
    /// The number of sentences.
    pub sentences: usize,
    /// Whether any is shorter.
    pub padded: bool,
}

/// The graph of a batch, with its inputs and its output.
#[derive(Debug)]
pub struct Batch<'c> {
    /// The graph.
    pub graph: Graph<'c>,
    /// The token ids, sentence by sentence, each padded to the length of the longest.
    pub tokens: Tensor<'c>,
    /// 0, 1, 2, ...
    pub positions: Tensor<'c>,
    /// Zeros: everything is in the first segment.
    pub segment: Tensor<'c>,
    /// Only with padding: 0 for a token, negative infinity for padding.
    pub mask: Option<Tensor<'c>>,
    /// The weight of each token in its sentence's mean.
    pub shares: Tensor<'c>,
    /// The result: a vector of length 1 for each sentence.
    pub vectors: Tensor<'c>,
}

impl<'c> Batch<'c> {
    /// `layers` are computed by our own kernels, where present; `weights` has all other weights.
    ///
    /// # Errors
    /// If the weights' shapes are not those of such a model.
    pub fn new(
        ctx: &'c Context,
        weights: &'c Weights,
        layers: &[Option<Layer>],
        config: &Config,
        shape: Shape,
        flash: bool,
    ) -> Result<Self> {
        let (n, sentences) = (i64::try_from(shape.tokens)?, i64::try_from(shape.sentences)?);
        let tokens = ctx.input("tokens", DType::I32, [n * sentences])?;
        let positions = ctx.input("positions", DType::I32, [n])?;
        let segment = ctx.input("segment", DType::I32, [1])?;
        let shares = ctx.input("shares", DType::F32, [n, 1, sentences])?;
        let mask = shape.padded.then(|| ctx.input("mask", DType::F16, [n, 1, 1, sentences])).transpose()?;
        // All tokens of a sentence attend to the same tokens.
        let rows = mask.map(|mask| ctx.repeat_4d(mask, [n, n, 1, sentences])).transpose()?;
        let encoder = Encoder { ctx, weights, config, n, sentences, mask: rows, flash };

        let words = ctx.get_rows(weights.tensor("token_embd.weight")?, tokens)?;
        let places = ctx.get_rows(weights.tensor("position_embd.weight")?, positions)?;
        let segments = ctx.get_rows(weights.tensor("token_types.weight")?, segment)?;
        let words = ctx.reshape(words, [config.width, n, sentences])?;
        let mut x = ctx.add(ctx.add(words, places)?, segments)?;
        x = encoder.norm(x, "token_embd_norm")?;
        for (i, layer) in layers.iter().enumerate() {
            x = match layer {
                Some(layer) => layer.apply(ctx, x, rows)?,
                None => encoder.layer(x, i)?,
            };
        }
        let vectors = encoder.mean(x, shares)?.named("vectors")?;
        Ok(Self { graph: ctx.graph([vectors])?, tokens, positions, segment, mask, shares, vectors })
    }
}

/// What all parts of the computation need.
struct Encoder<'c, 'a> {
    ctx: &'c Context,
    weights: &'c Weights,
    config: &'a Config,
    /// Tokens of each sentence.
    n: i64,
    sentences: i64,
    mask: Option<Tensor<'c>>,
    flash: bool,
}

impl<'c> Encoder<'c, '_> {
    fn layer(&self, x: Tensor<'c>, layer: usize) -> Result<Tensor<'c>> {
        let ctx = self.ctx;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let q = self.linear(x, &name("attn_q"))?;
        let k = self.linear(x, &name("attn_k"))?;
        let v = self.linear(x, &name("attn_v"))?;
        let attended = if self.flash { self.flash_attention(q, k, v) } else { self.attention(q, k, v) }?;
        let attended = self.linear(attended, &name("attn_output"))?;
        let x = self.norm(ctx.add(attended, x)?, &name("attn_output_norm"))?;
        let up = ctx.gelu_erf(self.linear(x, &name("ffn_up"))?)?;
        let down = self.linear(up, &name("ffn_down"))?;
        self.norm(ctx.add(down, x)?, &name("layer_output_norm"))
    }

    /// `[size, tokens, heads, sentences]`: splits a tensor into heads, as a view.
    fn heads(&self, x: Tensor<'c>) -> Result<Tensor<'c>> {
        let Config { width, heads, .. } = *self.config;
        let x = self.ctx.reshape(x, [width / heads, heads, self.n, self.sentences])?;
        Ok(self.ctx.permute(x, [0, 2, 1, 3])?)
    }

    fn attention(&self, q: Tensor<'c>, k: Tensor<'c>, v: Tensor<'c>) -> Result<Tensor<'c>> {
        let ctx = self.ctx;
        // The CPU's fast matrix product needs a contiguous second operand; the copy costs far less than it saves.
        let q = ctx.cont(self.heads(q)?)?;
        // A token's attention to each token: [tokens, tokens, heads, sentences].
        let scores = ctx.mul_mat(self.heads(k)?, q)?;
        let how = SoftMaxOptions::new().with_scale(self.config.scale()).with_mask(self.mask);
        let scores = ctx.soft_max_ext(scores, how)?;
        // A product sums over the first dimension of both operands, which must be the tokens here.
        let v = ctx.cont(ctx.permute(self.heads(v)?, [1, 0, 2, 3])?)?;
        let attended = ctx.mul_mat(v, scores)?;
        let attended = ctx.cont(ctx.permute(attended, [0, 2, 1, 3])?)?;
        Ok(ctx.reshape(attended, [self.config.width, self.n, self.sentences])?)
    }

    fn flash_attention(&self, q: Tensor<'c>, k: Tensor<'c>, v: Tensor<'c>) -> Result<Tensor<'c>> {
        let how = FlashAttnOptions::new(self.config.scale()).with_mask(self.mask);
        let attended = self.ctx.flash_attn_ext(self.heads(q)?, self.heads(k)?, self.heads(v)?, how)?;
        Ok(self.ctx.reshape(attended, [self.config.width, self.n, self.sentences])?)
    }

    /// Each sentence's mean over its tokens, normalised to length 1: `[width, sentences]`.
    fn mean(&self, x: Tensor<'c>, shares: Tensor<'c>) -> Result<Tensor<'c>> {
        let ctx = self.ctx;
        let by_token = ctx.cont(ctx.permute(x, [1, 0, 2, 3])?)?;
        let mean = ctx.mul_mat(by_token, shares)?;
        let mean = ctx.reshape(mean, [self.config.width, self.sentences])?;
        Ok(ctx.l2_norm(mean, LEAST_LENGTH)?)
    }

    fn linear(&self, x: Tensor<'c>, name: &str) -> Result<Tensor<'c>> {
        let product = self.ctx.mul_mat(self.weight(name, "weight")?, x)?;
        Ok(self.ctx.add(product, self.weight(name, "bias")?)?)
    }

    fn norm(&self, x: Tensor<'c>, name: &str) -> Result<Tensor<'c>> {
        let normal = self.ctx.norm(x, self.config.eps)?;
        let scaled = self.ctx.mul(normal, self.weight(name, "weight")?)?;
        Ok(self.ctx.add(scaled, self.weight(name, "bias")?)?)
    }

    fn weight(&self, name: &str, kind: &str) -> Result<Tensor<'c>> {
        Ok(self.weights.tensor(&format!("{name}.{kind}"))?)
    }
}
