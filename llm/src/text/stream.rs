//! Tokens as text, while they are generated.

use super::error::TextResult;
use super::tokenizer::Tokenizer;

/// Turns tokens into text as they come, in whole characters: a token may end within one.
///
/// Bytes that are no UTF-8 become U+FFFD, as in [`String::from_utf8_lossy`]. Special tokens are hidden unless
/// [`showing_special`](Self::showing_special) is called.
///
/// See [`Tokenizer`] for an example.
#[derive(Debug)]
pub struct TokenStream<'t> {
    tokenizer: &'t Tokenizer,
    show_special: bool,
    /// The beginning of a character.
    pending: Vec<u8>,
    text: String,
}

impl<'t> TokenStream<'t> {
    /// A stream at its beginning.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, show_special: false, pending: Vec::new(), text: String::new() }
    }

    /// Shows special tokens by their names.
    #[must_use]
    pub fn showing_special(mut self) -> Self {
        self.show_special = true;
        self
    }

    /// The text that the next token completes: empty while a character is incomplete.
    ///
    /// # Errors
    /// [`TextError::NoSuchToken`](super::TextError::NoSuchToken) if there is no such token; the stream then stays as it was.
    pub fn push(&mut self, id: i32) -> TextResult<&str> {
        let piece = self.tokenizer.piece(id, self.show_special)?;
        self.text.clear();
        self.pending.extend_from_slice(piece);
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            self.text.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            let last = done + invalid.len() == self.pending.len();
            // The beginning of a character has no error of a known length.
            if invalid.is_empty() || last && str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none()) {
                break;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
        self.pending.drain(..done);
        Ok(&self.text)
    }

    /// Ends the text: U+FFFD if a character is incomplete, else nothing. The stream is then at its beginning.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.pending.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
        &self.text
    }
}
