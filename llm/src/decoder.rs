//! A decoder: embedding, layers, and the matrix of logits.

use ggml::{Context, DType, Result, Tensor};

use crate::blocks::layer::Layer;
use crate::blocks::{Build, Linear, Norm};
use crate::config::Config;
use crate::declare::{Declare, Role, W};
use crate::error;

/// The tensors of a model.
#[derive(Debug)]
pub(crate) struct Decoder {
    embedding: W,
    /// The factor of embeddings.
    scale: Option<f32>,
    pub(crate) layers: Vec<Layer>,
    norm: Norm,
    output: Linear,
}

impl Decoder {
    /// Declares all tensors of a model.
    pub(crate) fn declare(d: &mut Declare<'_>, config: &Config) -> error::Result<Self> {
        const EMBEDDING: &str = "token_embd.weight";
        let Config { n_embd, n_vocab, .. } = *config;
        let embedding = d.need(EMBEDDING, [n_embd, n_vocab], Role::Embedding)?;
        let norm = Norm::declare(d, "output_norm", n_embd)?;
        let output = match d.optional("output.weight", [n_embd, n_vocab], Role::Matrix)? {
            Some(output) => output,
            None => d.matrix(EMBEDDING, [n_embd, n_vocab])?,
        };
        let output = Linear::of(output, d.maybe_vector("output.bias", n_vocab)?);
        let layers = config.architecture.declare(d, config)?;
        Ok(Self { embedding, scale: config.architecture.embedding_scale(config), layers, norm, output })
    }

    /// The input of token numbers.
    pub(crate) fn tokens(ctx: &Context, n: usize) -> Result<Tensor<'_>> {
        ctx.input("tokens", DType::I32, [n])
    }

    /// The logits of the wanted tokens, `[n_vocab, outputs]`, if there are any; with `embeddings` what they are made of,
    /// `[n_embd, outputs]`.
    pub(crate) fn apply<'c>(&self, b: &Build<'c>, tokens: Tensor<'c>, embeddings: bool) -> Result<Option<Tensor<'c>>> {
        let ctx = b.ctx;
        let mut x = ctx.get_rows(b.at(self.embedding), tokens)?;
        if let Some(scale) = self.scale {
            x = ctx.scale(x, scale)?;
        }
        for (i, layer) in self.layers.iter().enumerate() {
            match layer.apply(b, i, x)? {
                Some(y) => x = y,
                None => return Ok(None),
            }
        }
        let x = self.norm.apply(b, x)?;
        if embeddings {
            return Ok(Some(x));
        }
        let logits = self.output.apply(b, x)?;
        match b.config.final_softcap {
            Some(cap) => ctx.scale(ctx.tanh(ctx.scale(logits, 1.0 / cap)?)?, cap).map(Some),
            None => Ok(Some(logits)),
        }
    }
}
