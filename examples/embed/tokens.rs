//! Sentences as token ids.

use anyhow::{Context as _, Error, Result};
use embed::model::Model;
use tokenizers::{Tokenizer, TruncationParams};

/// The model's tokenizer.
#[derive(Debug)]
pub(crate) struct Tokens(Tokenizer);

impl Tokens {
    /// # Errors
    /// The model's tokenizer is invalid.
    pub(crate) fn new(model: &Model) -> Result<Self> {
        let read = || {
            let mut tokenizer = Tokenizer::from_bytes(model.tokenizer())?;
            let max_length = model.config().max_tokens;
            tokenizer.with_truncation(Some(TruncationParams { max_length, ..TruncationParams::default() }))?;
            // Padding is added later, when batches are known.
            tokenizer.with_padding(None);
            Ok(tokenizer)
        };
        read().map(Self).map_err(Error::from_boxed).context("the model's tokenizer can't be used")
    }

    /// The tokens of each sentence with special tokens; long sentences are truncated.
    ///
    /// # Errors
    /// A sentence can't be tokenised.
    pub(crate) fn of<S: AsRef<str>>(&self, sentences: &[S]) -> Result<Vec<Vec<i32>>> {
        let texts = sentences.iter().map(AsRef::as_ref).collect();
        let encoded = self.0.encode_batch_fast::<&str>(texts, true).map_err(Error::from_boxed)?;
        let numbers = |ids: &[u32]| ids.iter().map(|&id| Ok(i32::try_from(id)?)).collect();
        encoded.iter().map(|encoding| numbers(encoding.get_ids())).collect()
    }
}
