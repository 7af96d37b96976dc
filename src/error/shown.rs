//! Untrusted text (from a file, a peer or a user), made safe to print.

use std::fmt::{self, Write as _};

/// How many characters of a name are printed at most.
const NAME: usize = 80;

/// How many characters of any other text are printed at most. No path is longer.
const TEXT: usize = 4096;

/// Prints text so that it can't control a terminal: invisible characters are escaped, and overlong text is cut and ends
/// in `…`. Quotes and backslashes are printed as they are because paths contain them.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    text: &'a str,
    /// How many characters are printed at most.
    most: usize,
}

impl<'a> Shown<'a> {
    /// A name or a short value.
    pub fn name(text: &'a str) -> Self {
        Self { text, most: NAME }
    }

    /// A path or a sentence, on one line.
    pub fn text(text: &'a str) -> Self {
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
            // The last position is reserved for the ellipsis, unless the text ends there.
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
