//! Text from a file, a peer or a user, as it may be printed.

use std::fmt::{self, Write as _};

/// The most characters of a name.
const NAME: usize = 80;

/// The most characters of any other text. No path is longer.
const TEXT: usize = 4096;

/// Prints text so that it does nothing to a terminal: what is no visible character is escaped, and what is longer than a
/// reader wants ends in `…`. Quotes and backslashes stay as they are, for paths have them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    text: &'a str,
    /// The most characters that are printed.
    most: usize,
}

impl<'a> Shown<'a> {
    /// A name or a short value.
    pub(crate) fn name(text: &'a str) -> Self {
        Self { text, most: NAME }
    }

    /// A path or a sentence, on one line.
    pub(crate) fn text(text: &'a str) -> Self {
        Self { text, most: TEXT }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = 0;
        for (at, c) in self.text.char_indices() {
            let escape = c.escape_debug();
            let plain = matches!(c, '\'' | '"' | '\\');
            printed += if plain { 1 } else { escape.len() };
            // The last place is for the mark, unless nothing follows.
            let last = at + c.len_utf8() == self.text.len();
            if printed > self.most || printed == self.most && !last {
                return f.write_char('…');
            }
            if plain {
                f.write_char(c)?;
            } else {
                escape.fmt(f)?;
            }
        }
        Ok(())
    }
}
