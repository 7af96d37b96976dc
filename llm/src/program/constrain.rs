//! What answers may be: options of several commands.

use anyhow::Result;
use ggml_llm::Chooser;
#[cfg(feature = "constrain")]
use ggml_llm::constrain::{Constraint, Grammar, Grammars};
use ggml_llm::text::Tokenizer;

/// What answers may be.
#[derive(Debug, clap::Args)]
#[cfg_attr(feature = "constrain", group(multiple = false))]
pub(crate) struct Constraining {
    /// Answer by JSON that the schema in this file describes
    #[cfg(feature = "constrain")]
    #[arg(long, value_name = "FILE")]
    json_schema: Option<std::path::PathBuf>,
    /// Answer by a text of the grammar in this file, in llguidance's variant of Lark
    #[cfg(feature = "constrain")]
    #[arg(long, value_name = "FILE")]
    grammar: Option<std::path::PathBuf>,
    /// Answer by a text that this regular expression matches as a whole
    #[cfg(feature = "constrain")]
    #[arg(long)]
    regex: Option<String>,
}

/// The beginning of each answer.
pub(crate) struct Beginning {
    #[cfg(feature = "constrain")]
    constraint: Option<Constraint>,
}

impl Constraining {
    /// Compiles the grammar, if there is one.
    #[cfg(feature = "constrain")]
    pub(crate) fn compile(&self, tokenizer: Option<&Tokenizer>) -> Result<Beginning> {
        use anyhow::Context as _;
        let read = |path: &std::path::Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let grammar = match self {
            Self { json_schema: Some(path), .. } => Grammar::JsonSchema(read(path)?),
            Self { grammar: Some(path), .. } => Grammar::Lark(read(path)?),
            Self { regex: Some(regex), .. } => Grammar::Regex(regex.clone()),
            _ => return Ok(Beginning { constraint: None }),
        };
        let tokenizer = tokenizer.context("a grammar is for texts: give a PROMPT, not --tokens")?;
        let constraint = Grammars::new(tokenizer)?.compile(&grammar).context("the grammar can't be used")?;
        Ok(Beginning { constraint: Some(constraint) })
    }

    /// There is no grammar.
    #[cfg(not(feature = "constrain"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn compile(&self, _: Option<&Tokenizer>) -> Result<Beginning> {
        Ok(Beginning {})
    }
}

impl Beginning {
    /// Lets the chooser begin an answer.
    #[cfg_attr(not(feature = "constrain"), expect(clippy::unused_self, reason = "as with the feature"))]
    pub(crate) fn begin(&self, chooser: &mut Chooser) {
        #[cfg(feature = "constrain")]
        chooser.constrain(self.constraint.clone());
        #[cfg(not(feature = "constrain"))]
        let _ = chooser;
    }
}
