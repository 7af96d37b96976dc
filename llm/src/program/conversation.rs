//! Conversations in files: JSON, so that people can read them.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ggml_llm::text::Message;
use serde_json::{Value, json};

/// The key that tells these files from others, and the version of what is in them.
const KEY: &str = "ggml-llm conversation";
const VERSION: u64 = 1;

/// What a line of a chat asks the program, not the model.
pub(crate) enum Request<'l> {
    Save(&'l Path),
    Load(&'l Path),
}

impl<'l> Request<'l> {
    /// `/save FILE` or `/load FILE`; any other line is a message.
    pub(crate) fn of(line: &'l str) -> Option<Self> {
        let (command, file) = line.split_once(' ')?;
        let file = Path::new(file.trim());
        match command {
            "/save" => Some(Self::Save(file)),
            "/load" => Some(Self::Load(file)),
            _ => None,
        }
    }

    /// Saves the messages, or replaces them if all of a file can be read. Returns what was done.
    pub(crate) fn run(&self, messages: &mut Vec<Message>) -> Result<String> {
        match self {
            Self::Save(path) => {
                save(path, messages)?;
                Ok(format!("{} messages saved", messages.len()))
            }
            Self::Load(path) => {
                *messages = load(path)?;
                Ok(format!("{} messages loaded", messages.len()))
            }
        }
    }
}

/// The messages of a file.
pub(crate) fn load(path: &Path) -> Result<Vec<Message>> {
    let read = || {
        let value: Value = serde_json::from_slice(&std::fs::read(path)?).context("it is no JSON, or damaged")?;
        let version = value.get(KEY).and_then(Value::as_u64).context("it is no conversation of this program")?;
        ensure!(version == VERSION, "its version is {version}; this program reads version {VERSION}");
        let list = value.get("messages").and_then(Value::as_array).context("it has no list of messages")?;
        let message = |(i, value): (usize, &Value)| {
            let text = |key| value.get(key).and_then(Value::as_str);
            let message = text("role").zip(text("content")).map(|(role, content)| Message::new(role, content));
            message.with_context(|| format!("message {i} has no `role` and `content`"))
        };
        list.iter().enumerate().map(message).collect()
    };
    read().with_context(|| format!("{} can't be loaded", path.display()))
}

/// Writes the messages to a file, which may be there if it is a conversation. It is replaced at once.
pub(crate) fn save(path: &Path, messages: &[Message]) -> Result<()> {
    let write = || -> Result<()> {
        ensure!(!path.exists() || load(path).is_ok(), "the file is there, and is no conversation");
        let list: Vec<_> = messages.iter().map(|m| json!({ "role": m.role, "content": m.content })).collect();
        let text = serde_json::to_string_pretty(&json!({ KEY: VERSION, "messages": list }))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("{} can't be saved", path.display()))
}

/// The conversation of `--conversation`, which need not be there yet.
pub(crate) fn begin(file: Option<&PathBuf>, system: Option<String>) -> Result<Vec<Message>> {
    match file.filter(|path| path.exists()) {
        Some(path) => load(path),
        None => Ok(system.into_iter().map(|text| Message::new("system", text)).collect()),
    }
}
