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
    /// Whether line ends are kept.
    lines: bool,
}

impl<'a> Shown<'a> {
    /// A name or a short value.
    pub fn name(text: &'a str) -> Self {
        Self { text, most: NAME, lines: false }
    }

    /// A path or a sentence, on one line.
    pub fn text(text: &'a str) -> Self {
        Self { text, most: TEXT, lines: false }
    }

    /// What this program itself says, such as the message of another error: of several lines, those after the first are
    /// indented.
    pub fn lines(text: &'a str) -> Self {
        Self { text, most: TEXT, lines: true }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = 0;
        let text = if self.lines { self.text.trim_end() } else { self.text };
        for (at, c) in text.char_indices() {
            let escape = c.escape_debug();
            let plain = matches!(c, '\'' | '"' | '\\');
            printed += if plain { 1 } else { escape.len() };
            // The last position is reserved for the ellipsis, unless the text ends there.
            let last = at + c.len_utf8() == text.len();
            if printed > self.most || printed == self.most && !last {
                return f.write_char('…');
            }
            if self.lines && c == '\n' {
                f.write_str("\n  ")?;
            } else if plain {
                f.write_char(c)?;
            } else {
                escape.fmt(f)?;
            }
        }
        Ok(())
    }
}

/// Prints a number of characters at most; the last is then `…`.
pub(crate) struct Cut<'a, W> {
    out: &'a mut W,
    left: usize,
    /// The last character that there is room for, until it is known whether another follows.
    last: Option<char>,
    full: bool,
}

impl<'a, W: fmt::Write> Cut<'a, W> {
    /// Prints what `text` writes, which is told to stop when there is no room.
    pub(crate) fn print(out: &'a mut W, most: usize, text: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        let mut this = Self { out, left: most, last: None, full: false };
        match text(&mut this) {
            Err(_) if this.full => Ok(()),
            printed => printed.and_then(|()| this.last.map_or(Ok(()), |c| this.out.write_char(c))),
        }
    }
}

impl<W: fmt::Write> fmt::Write for Cut<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| self.write_char(c))
    }

    fn write_char(&mut self, c: char) -> fmt::Result {
        if self.left > 1 {
            self.left -= 1;
            return self.out.write_char(c);
        }
        if self.left == 1 && self.last.is_none() {
            self.last = Some(c);
            return Ok(());
        }
        self.full = true;
        if self.left == 1 {
            self.out.write_char('…')?;
        }
        Err(fmt::Error)
    }
}

/// Prints the size of a request for memory, if it is known.
#[derive(Debug, Clone, Copy)]
pub struct Needs(pub Option<usize>);

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            // What is counted stops there.
            Some(usize::MAX) => f.write_str(" (more bytes than there are addresses)"),
            Some(bytes) => write!(f, " ({bytes} bytes)"),
        }
    }
}

/// How many existing names are printed at most.
const AVAILABLE: usize = 50;

/// Prints the existing names, where one was asked for that does not exist.
#[derive(Debug, Clone, Copy)]
pub struct Available<'a>(pub &'a [Box<str>]);

impl fmt::Display for Available<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("are none");
        }
        f.write_str("are: ")?;
        for (i, name) in self.0.iter().take(AVAILABLE).enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, Shown::name(name))?;
        }
        match self.0.len().saturating_sub(AVAILABLE) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_escapes_control_characters() {
        let text = "a\u{1b}]0;b\u{7}c\u{9b}31m\r\n\u{202e}d \u{e9}\u{4e16}\u{1f600} 'e\"\\";
        let shown = r#"a\u{1b}]0;b\u{7}c\u{9b}31m\r\n\u{202e}d é世😀 'e"\"#;
        assert_eq!(Shown::name(text).to_string(), shown);
        assert_eq!(Shown::text(text).to_string(), shown);
    }

    #[test]
    fn shown_truncates_long_names() {
        let cut = |text: &str| Shown::name(text).to_string();
        assert_eq!(cut(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(cut(&"x".repeat(81)), format!("{}…", "x".repeat(79)));
        // An escape sequence is never split.
        assert_eq!(cut(&"\u{1b}".repeat(5 << 20)), format!("{}…", r"\u{1b}".repeat(13)));
        assert_eq!(Shown::text(&"y".repeat(5 << 20)).to_string().chars().count(), 4096);
    }

    #[test]
    fn shown_keeps_the_lines_of_messages_alone() {
        let text = "left: 1\n right: \u{1b}2\r\n\n";
        assert_eq!(Shown::lines(text).to_string(), "left: 1\n   right: \\u{1b}2");
        assert_eq!(Shown::text("a\nb").to_string(), r"a\nb");
        assert!(Shown::lines(&"a\n".repeat(1 << 20)).to_string().len() < 20_000);
    }

    #[test]
    fn cut_prints_what_there_is_room_for() {
        let cut = |text: &str, most| {
            let mut out = String::new();
            Cut::print(&mut out, most, |out| out.write_str(text)).unwrap();
            out
        };
        let texts = [cut("", 3), cut("a", 3), cut("abc", 3), cut("abcd", 3), cut("ab", 1), cut("a", 0)];
        assert_eq!(texts, ["", "a", "abc", "ab…", "…", ""]);
    }

    #[test]
    fn needs_names_no_absurd_number() {
        let needs = |bytes| Needs(bytes).to_string();
        assert_eq!([needs(None), needs(Some(7))], ["", " (7 bytes)"]);
        assert!(!needs(Some(usize::MAX)).contains(char::is_numeric));
    }
}
