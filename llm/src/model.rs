//! A model: its file, hyperparameters, layers and weights.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use ggml::gguf::Load as _;
use ggml::gguf::{Reader, TensorInfo};
use ggml::{Device, Weights, WeightsBuilder};

use crate::config::Config;
use crate::declare::{Declare, Declared};
use crate::decoder::Decoder;
use crate::digest::digest;
use crate::error::{Error, Result};
use crate::files::{self, Files};
use crate::metadata::Metadata;
use crate::parallel;
use crate::placing::{ModelOptions, Placing};
use crate::text::{self, ChatTemplate, Tokenizer};
use crate::weights::{self, Choose, ModelWeights};

/// A loaded model, which sessions share.
#[derive(Debug)]
pub struct Model {
    config: Config,
    decoder: Decoder,
    weights: ModelWeights,
    placing: Placing,
    files: Files,
}

impl Model {
    /// Loads a GGUF file of one of the families; of a file that was split, the first part.
    ///
    /// # Errors
    ///
    /// [`Error::File`] and [`Error::Ggml`] if it is no GGUF file or can't be loaded; other variants name what is missing or
    /// wrong in it.
    pub fn load(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Arc<Self>> {
        Self::load_with(path, options, &mut |_, _| ())
    }

    /// [`Model::load`] that calls `progress` with the number of bytes copied so far, and in total. What stays in the file
    /// is not counted.
    ///
    /// # Errors
    ///
    /// As [`Model::load`].
    pub fn load_with(
        path: impl AsRef<Path>,
        options: &ModelOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<Self>> {
        let files = Files::open(path.as_ref())?;
        // What is copied is read, not mapped: pages of a mapping would stay in memory.
        let mut streams = Vec::new();
        for path in &files.paths {
            streams.push(Reader::from_stream(files::open(path)?)?);
        }
        let before = Cell::new(0);
        let model = Self::from_files(files, options, |part, place| {
            let Some(stream) = streams.get_mut(part) else { return WeightsBuilder::new().place(Device::cpu()?) };
            let (earlier, mut all) = (before.get(), 0);
            let weights = stream.stream(place, |done, total| {
                all = total;
                progress(earlier + done, earlier + total);
            })?;
            before.set(earlier + all);
            Ok(weights)
        })?;
        Ok(Arc::new(model))
    }

    fn from_files(
        files: Files,
        options: &ModelOptions,
        copy: impl FnMut(usize, &Choose<'_>) -> ggml::Result<Weights>,
    ) -> Result<Self> {
        let (config, decoder, declared) = declare(&files)?;
        let used = |name: &str| declared.iter().any(|d| &*d.name == name);
        let unknown: Vec<_> = files.tensors().map(TensorInfo::name).filter(|name| !used(name)).collect();
        if let Some((first, rest)) = unknown.split_first() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more tensors", rest.len()) };
            let names = format!("`{first}`{more}").into();
            return Err(Error::UnknownTensors { architecture: config.architecture.name(), names });
        }
        let block = |name: &str| {
            let block = files.tensor(name)?.dtype().block_size();
            Ok(usize::try_from(block).unwrap_or(usize::MAX))
        };
        let placing = Placing::new(options, config.n_layer, |members, parts| {
            parallel::device(&config, &declared, members, parts, block)
        })?;
        let weights = weights::load(&files, &declared, &config, &placing, options, copy)?;
        Ok(Self { config, decoder, weights, placing, files })
    }

    /// The hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The file's metadata.
    pub fn metadata(&self) -> &dyn Metadata {
        self.files.first()
    }

    /// The descriptions of all tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.files.tensors()
    }

    /// The tokenizer of the file.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::from_gguf`].
    pub fn tokenizer(&self) -> text::TextResult<Tokenizer> {
        Tokenizer::from_gguf(self.files.first())
    }

    /// The chat template of the file.
    ///
    /// # Errors
    ///
    /// As [`ChatTemplate::from_gguf`].
    pub fn chat_template(&self, tokenizer: &Tokenizer) -> text::TextResult<ChatTemplate> {
        ChatTemplate::from_gguf(self.files.first(), tokenizer)
    }

    /// A number that differs for other hyperparameters, tensors, and beginnings of tensors; `n_ctx` tokens fit.
    pub(crate) fn digest(&self, n_ctx: usize) -> Result<u64> {
        let mut hash = digest(0, format!("{:?}", self.config).as_bytes());
        for tensor in self.files.tensors() {
            let data = self.files.data(tensor.name())?;
            hash = digest(hash, format!("{} {} {}", tensor.name(), tensor.dtype().name(), tensor.shape()).as_bytes());
            hash = digest(hash, data.get(..64).unwrap_or(data));
        }
        // Which factors of frequencies keys were rotated with.
        let long = self.config.attention.as_ref().is_some_and(|a| n_ctx > a.rope.n_ctx_orig);
        let depends = self.files.tensor("rope_factors_long.weight").is_ok();
        Ok(digest(hash, &[u8::from(long && depends)]))
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    pub(crate) fn weights(&self) -> &ModelWeights {
        &self.weights
    }

    pub(crate) fn placing(&self) -> &Placing {
        &self.placing
    }
}

/// The hyperparameters of a file, and what it needs to have.
fn declare(files: &Files) -> Result<(Config, Decoder, Vec<Declared>)> {
    let config = Config::of(files.first(), files)?;
    let mut d = Declare::new(files);
    let decoder = Decoder::declare(&mut d, &config)?;
    Ok((config, decoder, d.into_list()))
}
