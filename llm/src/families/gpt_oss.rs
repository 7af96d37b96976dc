//! gpt-oss: experts with biases, attention with sinks; every other layer sees a window.

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

/// Each of so many layers sees all tokens.
const PATTERN: usize = 2;

pub(super) fn config(keys: &Keys<'_>, mut config: Config) -> Result<Config> {
    let attention = keys.attention(&config)?;
    let window = keys.window(&config, PATTERN, attention.rope.freq_base, attention.rope.freq_scale)?;
    config.window = Some(window.ok_or_else(|| keys.wrong("attention.sliding_window", "a positive number"))?);
    config.attention = Some(attention);
    config.experts = Some(keys.experts(keys.count("expert_feed_forward_length")?)?);
    Ok(config)
}

pub(super) fn layer(d: &mut Declare<'_>, config: &Config, layer: usize) -> Result<Layer> {
    let (heads, n_embd) = (attention(config)?, config.n_embd);
    let experts = config.experts.as_ref().ok_or_else(|| missing(config, "experts"))?;
    let kind = AttentionKind {
        sinks: true,
        window: config.window.as_ref().filter(|w| w.has(layer)).map(|w| [w.freq_base, w.freq_scale]),
        ..AttentionKind::new(RopeMode::NeoX, heads)
    };
    Ok(Layer::Transformer(Box::new(Transformer {
        attn_norm: Norm::declare(d, "attn_norm", n_embd)?,
        attention: AttentionBlock::declare(d, n_embd, heads, kind)?,
        attn_post_norm: None,
        ffn_norm: Norm::declare(d, "post_attention_norm", n_embd)?, // it stands before the experts all the same
        ffn: Ffn::Experts(ExpertsBlock::declare(d, n_embd, experts, experts::ExpertsKind::Oai)?),
        ffn_post_norm: None,
    })))
}
