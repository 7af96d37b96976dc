//! Attention to the cache.

use ggml::{
    Context, Result, Tensor,
    ops::{Prec, RopeMode, RopeOptions},
};

use super::{Build, Linear, Norm};
use crate::cache::KvCache;
use crate::config::{Attention as Config, RopeConfig};
use crate::declare::{Declare, Role, W};
use crate::error;
use crate::weights::ModelWeights;

/// How queries, keys and values are computed.
#[derive(Debug, Clone, Copy)]
enum Qkv {
    Separate([Linear; 3]),
    /// One matrix with the rows of all three.
    Fused(Linear),
}

/// What the scores are multiplied by, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Scores(f32),
    Queries(f32),
}

/// Divisors of the frequencies, for all layers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Factors {
    always: Option<W>,
    /// For contexts longer than those of the training before it was extended, and for others.
    long: Option<W>,
    short: Option<W>,
}

impl Factors {
    /// Declares those that the file has: one for each pair that is rotated. ggml wants one for each pair of a head.
    pub(crate) fn declare(d: &mut Declare<'_>, config: &Config) -> error::Result<Self> {
        let mut find = |name| d.maybe_factors(name, config.rope.n_rot / 2, config.n_embd_head_k / 2);
        Ok(Self {
            always: find("rope_freqs.weight")?,
            long: find("rope_factors_long.weight")?,
            short: find("rope_factors_short.weight")?,
        })
    }

    fn get(self, rope: &RopeConfig, n_ctx: usize) -> Option<W> {
        self.always.or(if n_ctx > rope.n_ctx_orig { self.long } else { self.short })
    }
}

/// How attention differs from the common kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionKind {
    pub(crate) rope: RopeMode,
    pub(crate) scale: Scale,
    /// Queries and keys are normalised by head.
    pub(crate) qk_norm: bool,
    /// There is a sink per head.
    pub(crate) sinks: bool,
    /// A matrix with the rows of queries, keys and values may be there in place of three.
    pub(crate) fused: bool,
    pub(crate) factors: Factors,
    /// The layer sees a window; base and scale of its frequencies.
    pub(crate) window: Option<[f32; 2]>,
}

impl AttentionKind {
    /// The common kind, whose scores are divided by the square root of the size of a head.
    pub(crate) fn new(rope: RopeMode, config: &Config) -> Self {
        let scale = Scale::Scores(inverse_sqrt(config.n_embd_head_k));
        let factors = Factors::default();
        Self { rope, scale, qk_norm: false, sinks: false, fused: false, factors, window: None }
    }
}

/// One over the square root of a small number.
#[expect(clippy::cast_precision_loss, reason = "the size of a head")]
pub(crate) fn inverse_sqrt(n: usize) -> f32 {
    1.0 / (n as f32).sqrt()
}

/// An attention block: queries, keys, values and output.
#[derive(Debug)]
pub(crate) struct AttentionBlock {
    config: Config,
    kind: AttentionKind,
    qkv: Qkv,
    /// Of queries and keys.
    norms: Option<(Norm, Norm)>,
    sinks: Option<W>,
    output: Linear,
}

impl AttentionBlock {
    /// Declares the tensors of a layer.
    pub(crate) fn declare(
        d: &mut Declare<'_>,
        n_embd: usize,
        config: &Config,
        kind: AttentionKind,
    ) -> error::Result<Self> {
        let Config { n_head, n_embd_head_k, n_embd_head_v, .. } = *config;
        let (n_q, n_k, n_v) = (n_head * n_embd_head_k, config.n_embd_k_gqa(), config.n_embd_v_gqa());
        let all = n_q + n_k + n_v;
        let fused = if kind.fused { d.optional("attn_qkv.weight", [n_embd, all], Role::Matrix)? } else { None };
        let qkv = match fused {
            Some(weight) => Qkv::Fused(Linear::of(weight, d.maybe_vector("attn_qkv.bias", all)?)),
            None => Qkv::Separate([
                Linear::declare(d, "attn_q", n_embd, n_q)?,
                Linear::declare(d, "attn_k", n_embd, n_k)?,
                Linear::declare(d, "attn_v", n_embd, n_v)?,
            ]),
        };
        let mut norm = |name| kind.qk_norm.then(|| Norm::declare(d, name, n_embd_head_k)).transpose();
        let norms = norm("attn_q_norm")?.zip(norm("attn_k_norm")?);
        let sinks = if kind.sinks { Some(d.vector("attn_sinks.weight", n_head)?) } else { None };
        let output = Linear::declare(d, "attn_output", n_head * n_embd_head_v, n_embd)?;
        let mut config = config.clone();
        if let Some([freq_base, freq_scale]) = kind.window {
            config.rope = RopeConfig { freq_base, freq_scale, ..config.rope };
        }
        Ok(Self { config, kind, qkv, norms, sinks, output })
    }

    pub(crate) fn apply<'c>(&self, b: &Build<'c>, layer: usize, x: Tensor<'c>) -> Result<Tensor<'c>> {
        let (ctx, kv) = (b.ctx, b.kv());
        let [mut q, mut k, v] = self.qkv(b, x)?;
        if let Some((q_norm, k_norm)) = self.norms {
            (q, k) = (q_norm.apply(b, q)?, k_norm.apply(b, k)?);
        }
        let rope = self.rope(b.weights, b.n_ctx);
        (q, k) = (ctx.rope_ext(q, kv.positions, rope)?, ctx.rope_ext(k, kv.positions, rope)?);
        let scale = match self.kind.scale {
            Scale::Scores(scale) => scale,
            Scale::Queries(scale) => {
                q = ctx.scale(q, scale)?;
                1.0
            }
        };
        let written = kv.append(ctx, layer, [k, v])?;
        if b.outputs.is_none() && layer + 1 == b.config.n_layer {
            // Nothing needs the last layer's result.
            let [k, v] = written;
            b.write(k);
            b.write(v);
            return Ok(x);
        }
        let [k, v] = kv.heads(ctx, &self.config, written)?;
        let how = ggml::ops::FlashAttnOptions::new(scale)
            .with_mask(kv.mask(self.kind.window.is_some()))
            .with_sinks(self.sinks.map(|w| b.at(w)))
            .with_acc(Prec::F32);
        let q = ctx.permute(q, [0, 2, 1, 3])?;
        let y = b.weights.flash_attn_ext(ctx, self.output.weight, [q, k, v], how)?;
        let [size, heads, tokens, _] = y.ne();
        self.output.apply(b, ctx.reshape(y, [size * heads, tokens])?)
    }

    fn rope<'c>(&self, weights: &'c ModelWeights, n_ctx: usize) -> RopeOptions<'c> {
        let factors = self.kind.factors.get(&self.config.rope, n_ctx);
        self.config.rope.options(self.kind.rope, factors.map(|w| weights.at(w)))
    }

    /// The operation that rotates the keys in the cache by a number of positions for each cell.
    pub(crate) fn shift<'c>(
        &self,
        ctx: &'c Context,
        weights: &'c ModelWeights,
        cache: &'c KvCache,
        layer: usize,
        deltas: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        let mut rope = self.rope(weights, cache.cells.len());
        // Keys have the factor already. Where the kernel extrapolates, it multiplies by this itself.
        let own = 1.0 - 0.1 * rope.freq_scale.ln();
        rope.attn_factor = if rope.ext_factor == 0.0 { 1.0 } else { 1.0 / own };
        cache.rotate(ctx, layer, &self.config, deltas, rope)
    }

    /// Queries, keys and values, `[size, heads, tokens]`.
    fn qkv<'c>(&self, b: &Build<'c>, x: Tensor<'c>) -> Result<[Tensor<'c>; 3]> {
        let Config { n_head, n_head_kv, n_embd_head_k, n_embd_head_v, .. } = self.config;
        let shapes = [[n_embd_head_k, n_head], [n_embd_head_k, n_head_kv], [n_embd_head_v, n_head_kv]];
        match self.qkv {
            Qkv::Separate([q, k, v]) => {
                let one = |linear: Linear, [size, heads]: [usize; 2]| {
                    b.ctx.reshape(linear.apply(b, x)?, [size, heads, b.n_tokens])
                };
                let [q_shape, k_shape, v_shape] = shapes;
                Ok([one(q, q_shape)?, one(k, k_shape)?, one(v, v_shape)?])
            }
            Qkv::Fused(all) => {
                let all = all.apply(b, x)?;
                let [unit, row, ..] = all.nb();
                let mut offset = 0;
                let mut next = |[size, heads]: [usize; 2]| {
                    let strides = [size * unit, row, row * b.n_tokens];
                    let part = b.ctx.view(all, [size, heads, b.n_tokens], strides, offset);
                    offset += size * heads * unit;
                    part
                };
                let [q, k, v] = shapes.map(&mut next);
                Ok([q?, k?, v?])
            }
        }
    }
}
