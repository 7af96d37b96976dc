//! Qwen 3 with experts.

use ggml::RopeMode;

use super::{attention, missing};
use crate::blocks::Norm;
use crate::blocks::attention::{Attention, Kind};
use crate::blocks::experts::{self, Experts};
use crate::blocks::ffn::Ffn;
use crate::blocks::layer::{Layer, Transformer};
use crate::config::{Config, Keys};
use crate::declare::Declare;
use crate::error::Result;

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
    let kind = Kind { qk_norm: true, ..Kind::new(RopeMode::NeoX, heads) };
    Ok(Layer::Transformer(Box::new(Transformer {
        attn_norm: Norm::declare(d, "attn_norm", config.n_embd)?,
        attention: Attention::declare(d, config.n_embd, heads, kind)?,
        attn_post_norm: None,
        ffn_norm: Norm::declare(d, "ffn_norm", config.n_embd)?,
        ffn: Ffn::Experts(Experts::declare(d, config.n_embd, experts, experts::Kind::Normalised)?),
        ffn_post_norm: None,
    })))
}
