//! SentencePiece, as llama.cpp encodes with it: neighbours whose union is a token are merged, the best score first.

use super::error::{TextError, TextResult};
use super::merge::{Merge, Merger};
use super::vocabulary::{NONE, SPACE, Vocabulary};

/// SentencePiece (`llama`).
pub(super) struct Spm {
    /// Each text begins with a space.
    pub(super) space_first: bool,
    /// The token of each byte, or [`NONE`].
    bytes: Vec<u32>,
}

impl Spm {
    pub(super) fn new(vocabulary: &Vocabulary, space_first: bool) -> Self {
        let token = |byte: u8| {
            let itself = || byte.is_ascii().then(|| vocabulary.id(char::from(byte).encode_utf8(&mut [0; 4]))).flatten();
            vocabulary.id(&format!("<0x{byte:02X}>")).or_else(itself).unwrap_or(NONE)
        };
        Self { space_first, bytes: (0..=u8::MAX).map(token).collect() }
    }

    /// Appends the tokens of a text, which `first` says to begin after a special token.
    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        first: bool,
        tokens: &mut Vec<i32>,
    ) -> TextResult<()> {
        let space = if first && self.space_first { " " } else { "" };
        let escaped = [space, text].concat().replace(' ', SPACE.encode_utf8(&mut [0; 4]));
        let mut merger = Merger::default();
        for character in escaped.chars() {
            let id = vocabulary.id(character.encode_utf8(&mut [0; 4]));
            merger.push(character.len_utf8(), id.unwrap_or(NONE));
        }
        let part = |start: u32, end: u32| escaped.get(start as usize..end as usize).unwrap_or_default();
        let merged = merger.merge(|left, right| {
            let token = vocabulary.id(part(left.start, right.end))?;
            Some(Merge { rank: vocabulary.rank(token), token })
        });
        for symbol in merged {
            if symbol.token != NONE {
                tokens.push(symbol.token.cast_signed());
                continue;
            }
            let character = part(symbol.start, symbol.end);
            for byte in character.bytes() {
                let id = self.bytes.get(usize::from(byte)).copied().filter(|&id| id != NONE);
                let nothing = || TextError::NoToken { character: character.chars().next().unwrap_or_default(), byte };
                tokens.push(id.ok_or_else(nothing)?.cast_signed());
            }
        }
        Ok(())
    }
}
