//! Llama 1 to 3, Mistral and `SmolLM`; with experts, Mixtral.

use ggml::ops::{GluOp, RopeMode};

use super::attention;
use crate::blocks::Norm;
use crate::blocks::attention::{AttentionBlock, AttentionKind, Factors};
use crate::blocks::experts::{self, ExpertsBlock};
use crate::blocks::ffn::Ffn;
use crate::blocks::layer::{Layer, Transformer};
use crate::config::Config;
use crate::declare::Declare;
use crate::error::Result;
use crate::keys::Keys;

pub(super) fn config(keys: &Keys<'_>, mut config: Config) -> Result<Config> {
    let attention = keys.attention(&config)?;
    if attention.rope.n_rot != attention.n_embd_head_k {
        return Err(keys.wrong("rope.dimension_count", format!("{}, the size of a head", attention.n_embd_head_k)));
    }
    config.attention = Some(attention);
    if config.n_ff == 0 {
        return Err(keys.wrong("feed_forward_length", "a positive number"));
    }
    if keys.opt_count("expert_count")?.is_some() {
        config.experts = Some(keys.experts(config.n_ff)?);
    }
    Ok(config)
}

pub(super) fn layer(d: &mut Declare<'_>, config: &Config, factors: Factors) -> Result<Layer> {
    let heads = attention(config)?;
    let kind = AttentionKind { factors, ..AttentionKind::new(RopeMode::Normal, heads) };
    Ok(Layer::Transformer(Box::new(Transformer {
        attn_norm: Norm::declare(d, "attn_norm", config.n_embd)?,
        attention: AttentionBlock::declare(d, config.n_embd, heads, kind)?,
        attn_post_norm: None,
        ffn_norm: Norm::declare(d, "ffn_norm", config.n_embd)?,
        ffn: match &config.experts {
            None => Ffn::gated(d, config.n_embd, config.n_ff, GluOp::Swiglu)?,
            Some(e) => Ffn::Experts(ExpertsBlock::declare(d, config.n_embd, e, experts::ExpertsKind::Normalised)?),
        },
        ffn_post_norm: None,
    })))
}
