//! Gemma 3: norms before and behind each part; most layers see a window.

use ggml::ops::{GluOp, RopeMode};

use super::attention;
use crate::blocks::Norm;
use crate::blocks::attention::{AttentionBlock, AttentionKind, Scale, inverse_sqrt};
use crate::blocks::ffn::Ffn;
use crate::blocks::layer::{Layer, Transformer};
use crate::config::Config;
use crate::declare::Declare;
use crate::error::Result;
use crate::keys::Keys;

/// Each of so many layers sees all tokens.
const PATTERN: usize = 6;

/// The base of the frequencies in layers with a window.
const WINDOW_BASE: f32 = 10_000.0;

/// The number of layers of the one size whose scores are scaled by another number than the size of a head.
const LAYERS_OF_27B: usize = 62;

pub(super) fn config(keys: &Keys<'_>, mut config: Config) -> Result<Config> {
    config.attention = Some(keys.attention(&config)?);
    config.window = keys.window(&config, PATTERN, WINDOW_BASE, 1.0)?;
    config.final_softcap = keys.opt_float("final_logit_softcapping")?;
    if config.n_ff == 0 {
        return Err(keys.wrong("feed_forward_length", "a positive number"));
    }
    Ok(config)
}

pub(super) fn layer(d: &mut Declare<'_>, config: &Config, layer: usize) -> Result<Layer> {
    let (heads, n_embd) = (attention(config)?, config.n_embd);
    let size = if config.n_layer == LAYERS_OF_27B { n_embd / heads.n_head } else { heads.n_embd_head_k };
    let kind = AttentionKind {
        qk_norm: true,
        scale: Scale::Queries(inverse_sqrt(size)),
        window: config.window.as_ref().filter(|w| w.has(layer)).map(|w| [w.freq_base, w.freq_scale]),
        ..AttentionKind::new(RopeMode::NeoX, heads)
    };
    Ok(Layer::Transformer(Box::new(Transformer {
        attn_norm: Norm::declare(d, "attn_norm", n_embd)?,
        attention: AttentionBlock::declare(d, n_embd, heads, kind)?,
        attn_post_norm: Some(Norm::declare(d, "post_attention_norm", n_embd)?),
        ffn_norm: Norm::declare(d, "ffn_norm", n_embd)?,
        ffn: Ffn::gated(d, n_embd, config.n_ff, GluOp::Geglu)?,
        ffn_post_norm: Some(Norm::declare(d, "post_ffw_norm", n_embd)?),
    })))
}
