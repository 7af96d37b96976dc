//! The families of models: what their files say, and how their layers are built.

mod gemma3;
mod gpt_oss;
mod llama;
mod mamba2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3moe;
mod read;

use ggml::gguf::Value;

use crate::architecture::Architecture;
use crate::blocks::attention::Factors;
use crate::blocks::layer::Layer;
use crate::config::Config;
use crate::declare::Declare;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::metadata::shown;

impl Architecture {
    /// Completes the hyperparameters by those that not all families have.
    pub(crate) fn read_config(self, keys: &Keys<'_>, config: Config) -> Result<Config> {
        match self {
            Self::Llama => llama::config(keys, config),
            Self::Qwen2 | Self::Qwen3 => qwen2::config(keys, config),
            Self::Qwen3Moe => qwen3moe::config(keys, config),
            Self::Gemma3 => gemma3::config(keys, config),
            Self::Phi3 => phi3::config(keys, config),
            Self::GptOss => gpt_oss::config(keys, config),
            Self::Mamba2 => mamba2::config(keys, config),
        }
    }

    /// Declares the tensors of all layers.
    pub(crate) fn declare(self, d: &mut Declare<'_>, config: &Config) -> Result<Vec<Layer>> {
        let factors = match (self, &config.attention) {
            (Self::Llama | Self::Phi3, Some(attention)) => Factors::declare(d, attention)?,
            _ => Factors::default(),
        };
        let mut layers = Vec::new();
        for i in 0..config.n_layer {
            d.layer(i);
            layers.push(match self {
                Self::Llama => llama::layer(d, config, factors)?,
                Self::Qwen2 => qwen2::layer(d, config)?,
                Self::Qwen3 => qwen3::layer(d, config)?,
                Self::Qwen3Moe => qwen3moe::layer(d, config)?,
                Self::Gemma3 => gemma3::layer(d, config, i)?,
                Self::Phi3 => phi3::layer(d, config, factors)?,
                Self::GptOss => gpt_oss::layer(d, config, i)?,
                Self::Mamba2 => mamba2::layer(d, config)?,
            });
        }
        d.no_layer();
        Ok(layers)
    }

    /// The factor of token embeddings.
    pub(crate) fn embedding_scale(self, config: &Config) -> Option<f32> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "as llama.cpp; sizes are small")]
            Self::Gemma3 => Some((config.n_embd as f32).sqrt()),
            _ => None,
        }
    }
}

/// The hyperparameters of attention of a family that has it.
fn attention(config: &Config) -> Result<&crate::config::Attention> {
    config.attention.as_ref().ok_or_else(|| missing(config, "attention"))
}

fn missing(config: &Config, what: &str) -> Error {
    let key = Value::String(config.architecture.name().into());
    Error::Key {
        key: "general.architecture".into(),
        value: shown(&key).into(),
        expected: format!("one with {what}").into(),
    }
}
