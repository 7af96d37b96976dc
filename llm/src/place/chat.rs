//! Which chat template.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::model::Model;
use crate::text::{ChatTemplate, TextError, Tokenizer};

/// Which chat template messages are written by.
#[derive(Debug, clap::Args)]
pub struct TemplateChoice {
    /// A file with a chat template in Jinja [default: the model's; `ChatML` if it has none]
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
}

/// For models without a template: the most common one.
const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

impl TemplateChoice {
    /// The template of the file, or else the model's, or else `ChatML`, which is said.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or the template doesn't parse.
    #[expect(clippy::print_stderr, reason = "a program's output")]
    pub fn template(&self, model: &Model, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
        if let Some(path) = &self.chat_template {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            return ChatTemplate::with_tokenizer(&text, tokenizer).with_context(|| path.display().to_string());
        }
        match model.chat_template(tokenizer) {
            Err(TextError::Missing { .. }) => {
                eprintln!("[the model has no chat template: chats are in ChatML; --chat-template gives another]");
                Ok(ChatTemplate::with_tokenizer(CHATML, tokenizer)?)
            }
            template => Ok(template?),
        }
    }
}
