//! `embed`: texts as points.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use ggml_llm::Batch;
use ggml_llm::place::ModelPlace;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line of the output is {\"index\": …, \"tokens\": …, \"embedding\": […]}: what the last layer makes of the
text's last token, after the norm, with length 1."
)]
pub(crate) struct EmbedArguments {
    #[command(flatten)]
    place: ModelPlace,
    /// The text; `-` for the standard input, as a whole
    #[arg(required_unless_present = "lines")]
    text: Option<String>,
    /// A file each of whose lines is a text, empty ones left out; `-` for the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    lines: Option<PathBuf>,
    /// Take names of special tokens in the texts for these
    #[arg(long)]
    special: bool,
}

impl EmbedArguments {
    fn texts(&self) -> Result<Vec<String>> {
        let input = || {
            let mut all = String::new();
            std::io::stdin().read_to_string(&mut all).map(|_| all)
        };
        match (&self.text, &self.lines) {
            (Some(text), _) if text == "-" => Ok(vec![input()?]),
            (Some(text), _) => Ok(vec![text.clone()]),
            (None, Some(path)) => {
                let all = if path.as_os_str() == "-" { input() } else { std::fs::read_to_string(path) };
                let all = all.with_context(|| path.display().to_string())?;
                Ok(all.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
            }
            (None, None) => bail!("give a TEXT or --lines"),
        }
    }
}

pub(crate) fn run(arguments: &EmbedArguments) -> Result<()> {
    let texts = arguments.texts()?;
    let model = arguments.place.load()?;
    let tokenizer = model.tokenizer()?;
    let mut session = arguments.place.devices.session(model, 1)?;
    let mut out = std::io::stdout().lock();
    for (index, text) in texts.iter().enumerate() {
        let tokens = tokenizer.encode(text, true, arguments.special)?;
        ensure!(!tokens.is_empty(), "text {index} has no tokens");
        if let Some(room) = session.room() {
            ensure!(
                tokens.len() <= room,
                "text {index} has {} tokens, but {room} fit; --ctx sets how many",
                tokens.len()
            );
        }
        let mut batch = Batch::new();
        batch.prompt(0, &tokens);
        session.embed(&batch)?;
        let embedding = session.unit_embedding(0).context("the last token has no embedding")?;
        session.truncate(0, 0)?;
        let line = serde_json::json!({ "index": index, "tokens": tokens.len(), "embedding": embedding });
        writeln!(out, "{line}")?;
    }
    Ok(())
}
