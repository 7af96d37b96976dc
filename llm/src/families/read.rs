//! Reading hyperparameters from a file's metadata.

use ggml::gguf::{Array, Reader, Value};

use crate::architecture::Architecture;
use crate::config::Config;
use crate::declare::Source;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::metadata::{Metadata, refused};

impl Config {
    /// Reads the hyperparameters of a file's model.
    ///
    /// # Errors
    ///
    /// As [`Config::read`]; [`Error::MissingTensor`] if there is no embedding matrix.
    pub fn of_file<S>(file: &Reader<S>) -> Result<Self> {
        Self::of(file, file)
    }

    /// [`Config::of_file`] for metadata and tensors that may be in several files.
    pub(crate) fn of(file: &dyn Metadata, tensors: &dyn Source) -> Result<Self> {
        // The family first: files of others may have no such matrix.
        Architecture::read(file)?;
        let (name, expected) = ("token_embd.weight", [1; 2].into());
        let missing = || Error::MissingTensor { name: name.into(), expected };
        let (_, shape) = tensors.find(name, expected).ok_or_else(missing)?;
        let [_, n_vocab, ..] = shape.ne();
        Self::read(file, usize::try_from(n_vocab).unwrap_or(0))
    }

    /// Reads the hyperparameters of a model whose embedding matrix has `n_vocab` rows.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`] and [`Error::Key`] name the key and what is expected; [`Error::UnknownKey`] names one that says
    /// of the model what its family doesn't know.
    pub fn read(file: &dyn Metadata, n_vocab: usize) -> Result<Self> {
        let architecture = Architecture::read(file)?;
        let keys = Keys::new(file, architecture.name());
        let tokens = match file.get("tokenizer.ggml.tokens") {
            Some(Value::Array(Array::String(tokens))) => tokens.len(),
            _ => n_vocab,
        };
        if tokens != n_vocab {
            let value = format!("a list of {tokens} tokens");
            let expected = format!("{n_vocab}, one for each row of `token_embd.weight`");
            return Err(refused("tokenizer.ggml.tokens", value, expected));
        }
        let config = Self {
            architecture,
            name: file.get("general.name").and_then(Value::as_str).map(Box::from),
            n_vocab,
            n_ctx_train: keys.count("context_length")?,
            n_embd: keys.count("embedding_length")?,
            n_layer: keys.count("block_count")?,
            n_ff: keys.opt_count("feed_forward_length")?.unwrap_or(0),
            rms_eps: keys.float("attention.layer_norm_rms_epsilon")?,
            attention: None,
            experts: None,
            window: None,
            final_softcap: None,
            ssm: None,
        };
        let config = architecture.read_config(&keys, config)?;
        keys.check_the_others(&config)?;
        Ok(config)
    }
}
