//! The program's commands.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod complete;
pub(crate) mod constrain;
pub(crate) mod conversation;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod interrupt;
pub(crate) mod options;
pub(crate) mod perplexity;
pub(crate) mod serve;

/// A text from a file without what terminals take for commands.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { c.escape_default().collect() } else { c.to_string() };
    text.chars().map(shown).collect()
}
