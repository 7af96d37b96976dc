//! Converts a published sentence encoder of the BERT family to a GGUF file.
//!
//! ```text
//! cargo run --release --example bert_to_gguf -- folder model.gguf
//! cargo run --release --example bert_to_gguf -- --help
//! ```

mod names;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use demos::Shown;
use demos::output::Output;
use ggml::DType;
use ggml::gguf::Writer;
use indicatif::{ProgressBar, ProgressStyle};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

const MORE: &str = "\
The folder holds config.json, tokenizer.json, model.safetensors (f32), sentence_bert_config.json and 1_Pooling/config.json.
Only encoders with mean pooling are supported.

Tensors and metadata have the names that llama.cpp uses for the architecture `bert`, so llama.cpp runs the file. The key
tokenizer.huggingface.json holds tokenizer.json. The example `quantize` makes the file smaller.

Exit status:
  0  the file was written
  1  a file can't be read or written, or holds an unsupported model; see standard error
  2  the command line is invalid";

/// Converts a sentence encoder of the BERT family to a GGUF file.
#[derive(Debug, Parser)]
#[command(name = "bert_to_gguf", after_help = MORE, max_term_width = 120)]
struct Cli {
    /// Folder with the model's files
    folder: PathBuf,

    /// Output file
    output: PathBuf,

    /// The model's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The licence of its weights
    #[arg(long, value_name = "SPDX")]
    license: Option<String>,

    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

fn main() -> ExitCode {
    demos::run(|| run(&Cli::parse(), &mut io::stdout()))
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let output = cli.output.display();
    let place = Output::new(&cli.output, cli.force, "OUTPUT")?;
    let mut writer = Writer::new();
    describe(&mut writer, cli)?;

    let path = cli.folder.join("model.safetensors");
    let bytes = read(&path)?;
    let file = SafeTensors::deserialize(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
    let mut tensors = Vec::new();
    for (theirs, tensor) in file.iter() {
        let Some(ours) = names::translate(theirs).with_context(|| path.display().to_string())? else { continue };
        ensure!(
            tensor.dtype() == Dtype::F32,
            "`{}` is of {:?}, but only f32 is understood",
            Shown::name(theirs),
            tensor.dtype()
        );
        tensors.push((ours, tensor));
    }
    // The order of tensors in the file is unspecified.
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, tensor) in &tensors {
        let dimensions: Vec<_> = tensor.shape().iter().rev().map(|&n| i64::try_from(n)).collect::<Result<_, _>>()?;
        ensure!(matches!(dimensions.len(), 1 | 2), "`{}` has {} dimensions", Shown::name(name), dimensions.len());
        let ne = [0, 1].map(|i| dimensions.get(i).copied().unwrap_or(1));
        writer.declare(name, DType::F32, ne)?;
    }
    let total: usize = tensors.iter().map(|(_, tensor)| tensor.data().len()).sum();
    let bar = ProgressBar::new(total as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes}, {eta} left")?);
    let mut data = tensors.iter().map(|(_, tensor)| tensor.data());
    writer.write_with(place.path(), |_, to| {
        let bytes = data.next().unwrap_or_default(); // in the order of their declaration
        // Both formats are little-endian.
        bar.wrap_write(to).write_all(bytes)
    })?;
    bar.finish_and_clear();
    writeln!(out, "bert_to_gguf: tensors={} bytes={total} file={output}", tensors.len())?;
    Ok(())
}

/// Writes the model's metadata, or fails if the model is not supported.
fn describe(writer: &mut Writer, cli: &Cli) -> Result<()> {
    let config = Json::read(cli.folder.join("config.json"))?;
    config.expect("model_type", &"bert".into())?;
    config.expect("hidden_act", &"gelu".into())?;
    config.expect("position_embedding_type", &"absolute".into())?;
    let pooling = Json::read(cli.folder.join("1_Pooling").join("config.json"))?;
    pooling.expect("pooling_mode_mean_tokens", &true.into())?;
    let sentences = Json::read(cli.folder.join("sentence_bert_config.json"))?;
    let tokenizer = cli.folder.join("tokenizer.json");
    let tokenizer = String::from_utf8(read(&tokenizer)?).with_context(|| tokenizer.display().to_string())?;

    writer.set("general.architecture", "bert")?;
    if let Some(name) = &cli.name {
        writer.set("general.name", name.as_str())?;
    }
    if let Some(license) = &cli.license {
        writer.set("general.license", license.as_str())?;
    }
    let numbers = [
        ("bert.block_count", &config, "num_hidden_layers"),
        ("bert.context_length", &config, "max_position_embeddings"),
        ("bert.embedding_length", &config, "hidden_size"),
        ("bert.feed_forward_length", &config, "intermediate_size"),
        ("bert.attention.head_count", &config, "num_attention_heads"),
        ("bert.max_sentence_length", &sentences, "max_seq_length"),
        ("tokenizer.ggml.token_type_count", &config, "type_vocab_size"),
    ];
    for (ours, json, theirs) in numbers {
        let number = json.get(theirs)?.as_u64().and_then(|n| u32::try_from(n).ok());
        writer.set(ours, number.with_context(|| format!("{}: `{theirs}` is no number", json.path.display()))?)?;
    }
    let eps = config.get("layer_norm_eps")?.as_f64().context("`layer_norm_eps` is no number")?;
    #[expect(clippy::cast_possible_truncation, reason = "what programs over ggml keep it in")]
    writer.set("bert.attention.layer_norm_epsilon", eps as f32)?;
    writer.set("bert.attention.causal", false)?;
    writer.set("bert.pooling_type", names::MEAN)?;
    vocabulary::describe(writer, &tokenizer)?;
    writer.set("tokenizer.huggingface.json", tokenizer)?;
    Ok(())
}

/// A JSON file of settings.
struct Json {
    path: PathBuf,
    value: Value,
}

impl Json {
    fn read(path: PathBuf) -> Result<Self> {
        let value = serde_json::from_slice(&read(&path)?).with_context(|| path.display().to_string())?;
        Ok(Self { path, value })
    }

    fn get(&self, key: &str) -> Result<&Value> {
        self.value.get(key).with_context(|| format!("{} does not say what `{key}` is", self.path.display()))
    }

    fn expect(&self, key: &str, expected: &Value) -> Result<()> {
        let found = self.get(key)?;
        let text = found.to_string();
        ensure!(
            found == expected,
            "{}: `{key}` is {}, but only {expected} is understood",
            self.path.display(),
            Shown::name(&text)
        );
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("can't read {}", path.display()))
}
