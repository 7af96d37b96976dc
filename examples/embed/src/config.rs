//! A model's hyperparameters.

use anyhow::{Context as _, Result, ensure};
use ggml::gguf::Reader;

/// The value of `bert.pooling_type` for mean pooling.
const MEAN: u64 = 1;

/// The model's hyperparameters, from the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The number of layers.
    pub layers: usize,
    /// Heads of the attention.
    pub heads: i64,
    /// The embedding size.
    pub width: i64,
    /// Added to variances by norms.
    pub eps: f32,
    /// The maximum number of tokens per sentence.
    pub max_tokens: usize,
}

impl Config {
    /// Reads them.
    ///
    /// # Errors
    /// If the file holds no such model.
    pub fn read<S>(file: &Reader<S>) -> Result<Self> {
        let value = |key: &str| file.metadata(key).with_context(|| format!("the file does not say what `{key}` is"));
        let number = |key: &str| {
            let number = value(key)?.as_u64().filter(|&n| n > 0);
            number.with_context(|| format!("`{key}` is no number of anything"))
        };
        ensure!(value("general.architecture")?.as_str() == Some("bert"), "the file holds no `bert`");
        ensure!(number("bert.pooling_type")? == MEAN, "the file holds no model whose vectors are means");
        let config = Self {
            layers: number("bert.block_count")?.try_into()?,
            heads: number("bert.attention.head_count")?.try_into()?,
            width: number("bert.embedding_length")?.try_into()?,
            eps: value("bert.attention.layer_norm_epsilon")?.as_f32().context("the epsilon of norms is no f32")?,
            max_tokens: number("bert.max_sentence_length")?.min(number("bert.context_length")?).try_into()?,
        };
        let Config { heads, width, .. } = config;
        ensure!(width % heads == 0, "{width} numbers can't be shared by {heads} heads");
        Ok(config)
    }

    /// The scale of attention scores: one over the square root of the key size.
    pub fn scale(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
        let size = (self.width / self.heads) as f32;
        size.sqrt().recip()
    }
}
