//! Qwen 2 and 2.5: as Llama, with biases of queries, keys and values.

use ggml::ops::{GluOp, RopeMode};

use super::attention;
use crate::blocks::Norm;
use crate::blocks::attention::{AttentionBlock, AttentionKind};
use crate::blocks::ffn::Ffn;
use crate::blocks::layer::{Layer, Transformer};
use crate::config::Config;
use crate::declare::Declare;
use crate::error::Result;
use crate::keys::Keys;

/// Also Qwen 3's.
pub(super) fn config(keys: &Keys<'_>, mut config: Config) -> Result<Config> {
    config.attention = Some(keys.attention(&config)?);
    if config.n_ff == 0 {
        return Err(keys.wrong("feed_forward_length", "a positive number"));
    }
    Ok(config)
}

pub(super) fn layer(d: &mut Declare<'_>, config: &Config) -> Result<Layer> {
    let kind = AttentionKind::new(RopeMode::NeoX, attention(config)?);
    transformer(d, config, kind)
}

/// A layer of Qwen 2 or 3, which differ in attention alone.
pub(super) fn transformer(d: &mut Declare<'_>, config: &Config, kind: AttentionKind) -> Result<Layer> {
    Ok(Layer::Transformer(Box::new(Transformer {
        attn_norm: Norm::declare(d, "attn_norm", config.n_embd)?,
        attention: AttentionBlock::declare(d, config.n_embd, attention(config)?, kind)?,
        attn_post_norm: None,
        ffn_norm: Norm::declare(d, "ffn_norm", config.n_embd)?,
        ffn: Ffn::gated(d, config.n_embd, config.n_ff, GluOp::Swiglu)?,
        ffn_post_norm: None,
    })))
}
