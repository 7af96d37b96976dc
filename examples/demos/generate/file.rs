//! Model files, which any program for llama models can run, and conversion of weights to other types.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use demos::convert::Job;
use ggml::gguf::{Reader, Value, Writer};
use ggml::{DType, Device, State, Weights, WeightsBuilder};

use crate::cli::TEMPERATURE;
use crate::model::{Config, EPS};
use crate::train::Training;
use crate::vocabulary::Vocabulary;

const ARCHITECTURE: &str = "llama";
/// The last message is all that the model gets: it answers single questions.
const CHAT_TEMPLATE: &str = "Question: {{ messages[-1]['content'] }}\nAnswer:";

/// The hyperparameters by their keys in the file.
fn sizes(config: &mut Config) -> [(&'static str, &mut usize); 5] {
    [
        ("llama.block_count", &mut config.layers),
        ("llama.attention.head_count", &mut config.heads),
        ("llama.embedding_length", &mut config.width),
        ("llama.feed_forward_length", &mut config.inner),
        ("llama.context_length", &mut config.window),
    ]
}

/// Writes a model file with f32 weights.
pub(crate) fn write(mut config: Config, how: Training, vocabulary: &Vocabulary, weights: &State) -> Result<Writer> {
    let mut file = Writer::new();
    file.set("general.architecture", ARCHITECTURE)?.set("general.name", "Answers about ggml")?;
    for (key, size) in sizes(&mut config) {
        file.set(key, u32::try_from(*size)?)?;
    }
    file.set("llama.attention.head_count_kv", u32::try_from(config.heads)?)?;
    file.set("llama.rope.dimension_count", u32::try_from(config.width / config.heads)?)?;
    file.set("llama.attention.layer_norm_rms_epsilon", EPS)?;
    vocabulary.write(&mut file)?;
    file.set("tokenizer.chat_template", CHAT_TEMPLATE)?;
    file.set("general.sampling.temp", TEMPERATURE)?;
    file.set("training.steps", how.steps)?.set("training.seed", how.seed)?;
    for (name, [columns, rows]) in config.tensors() {
        let shape = [i64::try_from(columns)?, i64::try_from(rows)?];
        file.tensor(&name, DType::F32, shape, &weights.read_bytes(&name)?)?;
    }
    Ok(file)
}

/// Opens a file, and converts its matrices to `dtype`, if given.
pub(crate) fn open(path: &Path, dtype: Option<DType>) -> Result<(Config, Vocabulary, Weights)> {
    read(&Reader::open(path)?.into_memory()?, dtype)
}

/// [`open`] for a file in memory.
///
/// # Errors
/// The file is not such a model, or a matrix can't be converted.
pub(crate) fn read(file: &Reader<Vec<u8>>, dtype: Option<DType>) -> Result<(Config, Vocabulary, Weights)> {
    let architecture = file.metadata("general.architecture").and_then(Value::as_str);
    ensure!(architecture == Some(ARCHITECTURE), "the file holds no `{ARCHITECTURE}` model");
    let vocabulary = Vocabulary::read(file)?;
    let mut config = Config { vocabulary: vocabulary.tokens.len(), layers: 0, heads: 0, width: 0, inner: 0, window: 0 };
    for (key, size) in sizes(&mut config) {
        let value = file.metadata(key).and_then(Value::as_u64);
        *size = value.with_context(|| format!("the file does not say what `{key}` is"))?.try_into()?;
    }
    let mut builder = WeightsBuilder::new();
    let mut types = Vec::new();
    for (name, [columns, rows]) in config.check()?.tensors() {
        let t = file.tensor(&name)?;
        let shape = [i64::try_from(columns)?, i64::try_from(rows)?];
        let fits = t.shape().ne() == [shape[0], shape[1], 1, 1];
        ensure!(fits, "`{name}` should be {columns} by {rows}, but is {}", t.shape());
        let to = dtype.filter(|_| rows > 1).unwrap_or(t.dtype());
        let blocks = to.row_size(shape[0]).is_some();
        ensure!(blocks, "`{name}` can't be {to}: its rows have {columns} numbers, which are no whole blocks");
        builder.tensor(&name, to, shape)?;
        types.push((name, t.dtype(), to, [columns, rows]));
    }
    let mut weights = builder.place(Device::cpu()?.buffer_type())?;
    for (name, from, to, [columns, rows]) in types {
        let bytes = file.data(&name)?;
        if from == to {
            weights.set_bytes(&name, bytes)?;
        } else {
            let job = Job { from, to, columns, rows, weights: None };
            let converted = job.run(bytes, NonZeroUsize::MIN, |_| ()).with_context(|| format!("tensor `{name}`"))?;
            weights.set_bytes(&name, &converted.bytes)?;
        }
    }
    Ok((config, vocabulary, weights))
}
