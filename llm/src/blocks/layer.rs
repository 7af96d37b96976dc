//! Whole layers.

use ggml::{Result, Tensor};

use super::attention::AttentionBlock;
use super::ffn::Ffn;
use super::mamba2::Mamba2;
use super::{Build, Norm};

/// A layer of a decoder.
#[derive(Debug)]
pub(crate) enum Layer {
    Transformer(Box<Transformer>),
    Mamba2 { norm: Norm, mixer: Mamba2 },
}

/// Attention and a feed-forward network, each with a norm before it and some with one behind it; their results are added to
/// what they read.
#[derive(Debug)]
pub(crate) struct Transformer {
    pub(crate) attn_norm: Norm,
    pub(crate) attention: AttentionBlock,
    pub(crate) attn_post_norm: Option<Norm>,
    pub(crate) ffn_norm: Norm,
    pub(crate) ffn: Ffn,
    pub(crate) ffn_post_norm: Option<Norm>,
}

impl Layer {
    /// Computes a layer; the last one only for the tokens whose logits are wanted. `None` if there are none.
    pub(crate) fn apply<'c>(&self, b: &Build<'c>, layer: usize, x: Tensor<'c>) -> Result<Option<Tensor<'c>>> {
        let wanted = |t: Tensor<'c>| match b.outputs {
            _ if layer + 1 < b.config.n_layer => Ok(Some(t)),
            Some(rows) => b.ctx.get_rows(t, rows).map(Some),
            None => Ok(None),
        };
        match self {
            Self::Transformer(parts) => {
                let y = parts.attention.apply(b, layer, parts.attn_norm.apply(b, x)?)?;
                let (Some(x), Some(y)) = (wanted(x)?, wanted(y)?) else { return Ok(None) };
                parts.rest(b, x, y).map(Some)
            }
            Self::Mamba2 { norm, mixer } => {
                let y = mixer.apply(b, layer, norm.apply(b, x)?)?;
                let (Some(x), Some(y)) = (wanted(x)?, wanted(y)?) else { return Ok(None) };
                b.ctx.add(x, y).map(Some)
            }
        }
    }
}

impl Transformer {
    /// What follows attention: `x` is what the layer reads, `y` the result of attention.
    fn rest<'c>(&self, b: &Build<'c>, x: Tensor<'c>, y: Tensor<'c>) -> Result<Tensor<'c>> {
        let post = |norm: Option<Norm>, t: Tensor<'c>| norm.map_or(Ok(t), |norm| norm.apply(b, t));
        let x = b.ctx.add(post(self.attn_post_norm, y)?, x)?;
        let y = self.ffn.apply(b, self.ffn_norm.apply(b, x)?)?;
        b.ctx.add(post(self.ffn_post_norm, y)?, x)
    }
}
