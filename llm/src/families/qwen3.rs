//! Qwen 3: as Qwen 2, with normalised queries and keys.

use ggml::ops::RopeMode;

use super::{attention, qwen2};
use crate::blocks::attention::AttentionKind;
use crate::blocks::layer::Layer;
use crate::config::Config;
use crate::declare::Declare;
use crate::error::Result;

pub(super) fn layer(d: &mut Declare<'_>, config: &Config) -> Result<Layer> {
    qwen2::transformer(
        d,
        config,
        AttentionKind { qk_norm: true, ..AttentionKind::new(RopeMode::NeoX, attention(config)?) },
    )
}
