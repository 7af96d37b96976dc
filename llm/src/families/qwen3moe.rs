//! Qwen 3 with experts.

use ggml::ops::RopeMode;

use super::{attention, missing};
use crate::blocks::Norm;
use crate::blocks::attention::{AttentionBlock, AttentionKind};
use crate::blocks::experts::{self, ExpertsBlock};
use crate::blocks::ffn::Ffn;
use crate::blocks::layer::{Layer, Transformer};
use crate::config::Config;
use crate::declare::Declare;
use crate::error::Result;
use crate::keys::Keys;

pub(super) fn config(keys: &Keys<'_>, mut config: Config) -> Result<Config> {
    config.attention = Some(keys.attention(&config)?);
    let used = keys.count("expert_used_count")?;
    let n_ff_exp = match keys.opt_count("expert_feed_forward_length")? {
        Some(n) => n,
        None => config.n_ff / used,
    };
    if n_ff_exp == 0 {
        return Err(keys.wrong("expert_feed_forward_length", "a positive number"));
    }
    config.experts = Some(keys.experts(n_ff_exp)?);
    Ok(config)
}

pub(super) fn layer(d: &mut Declare<'_>, config: &Config) -> Result<Layer> {
    let heads = attention(config)?;
    let experts = config.experts.as_ref().ok_or_else(|| missing(config, "experts"))?;
    let kind = AttentionKind { qk_norm: true, ..AttentionKind::new(RopeMode::NeoX, heads) };
    Ok(Layer::Transformer(Box::new(Transformer {
        attn_norm: Norm::declare(d, "attn_norm", config.n_embd)?,
        attention: AttentionBlock::declare(d, config.n_embd, heads, kind)?,
        attn_post_norm: None,
        ffn_norm: Norm::declare(d, "ffn_norm", config.n_embd)?,
        ffn: Ffn::Experts(ExpertsBlock::declare(d, config.n_embd, experts, experts::ExpertsKind::Normalised)?),
        ffn_post_norm: None,
    })))
}
