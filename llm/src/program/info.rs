//! `info` and `tokens`: what a file says.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use ggml::gguf::Reader;
use ggml_llm::Config;
use ggml_llm::text::Tokenizer;

use super::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct InfoArguments {
    /// A GGUF file
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokensArguments {
    /// A GGUF file
    file: PathBuf,
    /// The text
    text: String,
    /// Leave out the tokens that begin and end texts
    #[arg(long)]
    plain: bool,
    /// Take names of special tokens in the text for these
    #[arg(long)]
    special: bool,
}

pub(crate) fn run(arguments: &InfoArguments) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let file = Reader::open(&arguments.file)?;
    let config = Config::of_file(&file)?;
    let mut types: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut parameters = 0;
    for t in file.tensors() {
        let (count, bytes) = types.entry(t.dtype().name()).or_default();
        (*count, *bytes) = (*count + 1, *bytes + t.size());
        parameters += t.shape().elements().unwrap_or(0);
    }
    writeln!(out, "{}", printable(config.name.as_deref().unwrap_or("(no name)")))?;
    writeln!(out, "architecture {}, {parameters} parameters", config.architecture)?;
    writeln!(
        out,
        "{} layers of {}, {} tokens, context {}",
        config.n_layer, config.n_embd, config.n_vocab, config.n_ctx_train
    )?;
    if let Some(a) = &config.attention {
        let heads = format!("{} heads of {}, {} of keys and values", a.n_head, a.n_embd_head_k, a.n_head_kv);
        writeln!(out, "{heads}; rope: {} elements, base {}", a.rope.n_rot, a.rope.freq_base)?;
    }
    if let Some(w) = &config.window {
        let n = (0..config.n_layer).filter(|&i| w.has(i)).count();
        writeln!(out, "{n} layers see the last {} tokens only", w.size)?;
    }
    if let Some(e) = &config.experts {
        writeln!(out, "{} experts, {} of them for a token", e.n_expert, e.n_expert_used)?;
    }
    if let Some(s) = &config.ssm {
        writeln!(out, "states of {} by {}, {} heads", s.d_inner, s.d_state, s.n_head)?;
    }
    for (name, (count, bytes)) in types {
        writeln!(out, "{count} tensors of {name}: {} MiB", bytes >> 20)?;
    }
    writeln!(out, "products on the CPU: {}", kernels::describe())?;
    Ok(())
}

pub(crate) fn tokens(arguments: &TokensArguments) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let tokenizer = Tokenizer::from_gguf(&Reader::open(&arguments.file)?)?;
    for token in tokenizer.encode(&arguments.text, !arguments.plain, arguments.special)? {
        writeln!(out, "{token}\t{:?}", String::from_utf8_lossy(tokenizer.piece(token, true)?))?;
    }
    Ok(())
}
