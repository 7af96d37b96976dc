//! Phi 3 and 4: fused matrices, and frequencies for long texts.

use ggml::ops::RopeMode;

use super::attention;
use crate::blocks::Norm;
use crate::blocks::attention::{AttentionBlock, AttentionKind, Factors, Scale, inverse_sqrt};
use crate::blocks::ffn::Ffn;
use crate::blocks::layer::{Layer, Transformer};
use crate::config::Config;
use crate::declare::Declare;
use crate::error::Result;
use crate::keys::Keys;

/// `attention.sliding_window` is ignored, as llama.cpp does: files don't have it right.
pub(super) fn config(keys: &Keys<'_>, mut config: Config) -> Result<Config> {
    config.attention = Some(keys.attention(&config)?);
    if config.n_ff == 0 {
        return Err(keys.wrong("feed_forward_length", "a positive number"));
    }
    Ok(config)
}

pub(super) fn layer(d: &mut Declare<'_>, config: &Config, factors: Factors) -> Result<Layer> {
    let (heads, n_embd) = (attention(config)?, config.n_embd);
    let kind = AttentionKind {
        scale: Scale::Queries(inverse_sqrt(heads.n_embd_head_k)),
        factors,
        fused: true,
        ..AttentionKind::new(RopeMode::NeoX, heads)
    };
    Ok(Layer::Transformer(Box::new(Transformer {
        attn_norm: Norm::declare(d, "attn_norm", n_embd)?,
        attention: AttentionBlock::declare(d, n_embd, heads, kind)?,
        attn_post_norm: None,
        ffn_norm: Norm::declare(d, "ffn_norm", n_embd)?,
        ffn: Ffn::fused(d, n_embd, config.n_ff)?,
        ffn_post_norm: None,
    })))
}
