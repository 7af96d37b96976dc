//! Model files, which any program for llama models can run, and conversion of weights to other types.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use demos::convert::Job;
use ggml::gguf::{Array, Reader, Strings, Value, Writer};
use ggml::{DType, Device, State, Weights, WeightsBuilder};

use crate::model::{BYTES, Config, EPS};
use crate::train::Training;

const ARCHITECTURE: &str = "llama";
/// Messages of a chat as they are, a line each: the model goes on with the text.
const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}";
/// Texts never contain this byte, so that it can stand for their end.
const END: u32 = 0;

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
pub(crate) fn write(mut config: Config, how: Training, weights: &State) -> Result<Writer> {
    let mut file = Writer::new();
    file.set("general.architecture", ARCHITECTURE)?.set("general.name", "Bytes of documentation")?;
    for (key, size) in sizes(&mut config) {
        file.set(key, u32::try_from(*size)?)?;
    }
    file.set("llama.attention.head_count_kv", u32::try_from(config.heads)?)?;
    file.set("llama.rope.dimension_count", u32::try_from(config.width / config.heads)?)?;
    file.set("llama.attention.layer_norm_rms_epsilon", EPS)?;
    file.set("tokenizer.ggml.model", "gpt2")?.set("tokenizer.ggml.pre", "gpt-2")?;
    file.set("tokenizer.ggml.tokens", bytes().collect::<Strings>())?;
    file.set("tokenizer.ggml.token_type", (0..BYTES).map(kind).collect::<Vec<_>>())?;
    file.set("tokenizer.ggml.merges", Strings::default())?;
    file.set("tokenizer.ggml.bos_token_id", END)?.set("tokenizer.ggml.eos_token_id", END)?;
    file.set("tokenizer.ggml.add_bos_token", false)?.set("tokenizer.chat_template", CHAT_TEMPLATE)?;
    file.set("training.steps", how.steps)?.set("training.seed", how.seed)?;
    for (name, [columns, rows]) in config.tensors() {
        let shape = [i64::try_from(columns)?, i64::try_from(rows)?];
        file.tensor(&name, DType::F32, shape, &weights.read_bytes(&name)?)?;
    }
    Ok(file)
}

/// The tokens: byte-level BPE without merges. Bytes that are printable in Latin-1 stand for themselves, the others are the
/// characters from U+0100 on.
fn bytes() -> impl Iterator<Item = String> {
    let mut others = '\u{100}'..;
    (0..=u8::MAX).filter_map(move |byte| {
        let itself = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
        if itself { Some(char::from(byte)) } else { others.next() }.map(String::from)
    })
}

/// A token's kind: 1 for text, 3 for the one that ends it.
fn kind(token: usize) -> i32 {
    if token == END as usize { 3 } else { 1 }
}

/// Opens a file, and converts its matrices to `dtype`, if given.
pub(crate) fn open(path: &Path, dtype: Option<DType>) -> Result<(Config, Weights)> {
    read(&Reader::open(path)?.into_memory()?, dtype)
}

/// [`open`] for a file in memory.
///
/// # Errors
/// The file is not such a model, or a matrix can't be converted.
pub(crate) fn read(file: &Reader<Vec<u8>>, dtype: Option<DType>) -> Result<(Config, Weights)> {
    let architecture = file.metadata("general.architecture").and_then(Value::as_str);
    ensure!(architecture == Some(ARCHITECTURE), "the file holds no `{ARCHITECTURE}` model");
    let tokens = file.metadata("tokenizer.ggml.tokens").and_then(Value::as_array).map(Array::len);
    ensure!(tokens == Some(BYTES), "the model's tokens are no bytes (the package ggml-llm runs all llama models)");
    let mut config = Config { layers: 0, heads: 0, width: 0, inner: 0, window: 0 };
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
    Ok((config, weights))
}
