//! The tokens of a file: their texts, types and special roles.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{TextError, TextResult};
use super::metadata::TokenizerMetadata;
use super::{alphabet, special};

/// No token, or no symbol.
pub(super) const NONE: u32 = u32::MAX;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
pub(super) const SCORES: &str = "tokenizer.ggml.scores";

/// What a word begins with in the vocabularies of SentencePiece and WordPiece.
pub(super) const SPACE: char = '\u{2581}';

/// How the texts of normal tokens are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    /// A character for each byte.
    Bytes,
    /// [`SPACE`] for a space.
    Spaces,
}

/// The attributes of a token (`llama_token_attr`). A token may have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenAttributes(u8);

impl TokenAttributes {
    const UNDEFINED: Self = Self(0);
    pub(super) const NORMAL: Self = Self(1);
    pub(super) const UNKNOWN: Self = Self(2);
    pub(super) const CONTROL: Self = Self(4);
    pub(super) const USER_DEFINED: Self = Self(8);
    const BYTE: Self = Self(16);
    /// White space after the token is removed.
    pub(super) const STRIP_RIGHT: Self = Self(32);
    /// Without a text; only unigram models find such a token in texts.
    pub(super) const UNUSED: Self = Self(64);

    /// The attributes of a value of `tokenizer.ggml.token_type`.
    fn of_type(number: i32) -> Self {
        match number {
            1 => Self::NORMAL,
            2 => Self::UNKNOWN,
            3 => Self::CONTROL,
            4 => Self::USER_DEFINED,
            5 => Self::UNUSED,
            6 => Self::BYTE,
            _ => Self::UNDEFINED,
        }
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the token has any of these.
    pub(super) const fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    /// Whether it is hidden unless special tokens are shown.
    pub(super) const fn hidden(self) -> bool {
        self.any(Self::CONTROL.with(Self::UNKNOWN))
    }
}

/// The attributes of `n` tokens as the file has them. A vocabulary changes those of some by their names.
pub(super) fn types(metadata: &TokenizerMetadata<'_>, n: usize) -> TextResult<Vec<TokenAttributes>> {
    Ok(match metadata.numbers(TYPES, n)? {
        Some(types) => types.iter().map(|&number| TokenAttributes::of_type(number)).collect(),
        None => vec![TokenAttributes::NORMAL; n],
    })
}

/// The tokens of a file.
pub(super) struct Vocabulary {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
    attributes: Vec<TokenAttributes>,
    /// A token's rank by score: 0 for the best. Empty if all have the same.
    ranks: Vec<u32>,
    pub(super) special: special::Special,
    /// What tokens stand for, one after the other.
    pieces: Vec<u8>,
    /// Where each piece ends.
    ends: Vec<usize>,
}

impl Vocabulary {
    /// # Errors
    /// A key is missing or of another type, tokens are not unique, or a special token is none of them.
    pub(super) fn read(
        metadata: &TokenizerMetadata<'_>,
        writing: Writing,
        defaults: special::Defaults,
    ) -> TextResult<Self> {
        let missing = TextError::Missing { key: TOKENS, expected: "an array of strings, the tokens" };
        let tokens = metadata.texts(TOKENS)?.ok_or(missing)?;
        let n = tokens.len();
        if n == 0 || i32::try_from(n).is_err() {
            return Err(TextError::metadata(TOKENS, format!("has {n} strings, but there must be 1 to {}", i32::MAX)));
        }
        let (mut texts, mut ids) = (Vec::with_capacity(n), HashMap::with_capacity(n));
        for (id, text) in (0..).zip(tokens.iter()) {
            // Padding; llama.cpp's name of it.
            let text: Arc<str> = if text.is_empty() { format!("[EMPTY_{id}]").into() } else { text.into() };
            texts.push(Arc::clone(&text));
            if let Some(other) = ids.insert(Arc::clone(&text), id) {
                let problem = format!("has {text:?} twice, as tokens {other} and {id}; each token must be unique");
                return Err(TextError::metadata(TOKENS, problem));
            }
        }
        let attributes = types(metadata, n)?;
        let ranks = ranks(metadata.floats(SCORES, n)?.unwrap_or_default())?;
        let special = special::Special::default();
        let (pieces, ends) = (Vec::new(), Vec::with_capacity(n));
        let mut vocabulary = Self { texts, ids, attributes, ranks, special, pieces, ends };
        special::find(&mut vocabulary, metadata, defaults)?;
        vocabulary.spell(writing)?;
        Ok(vocabulary)
    }

    /// Writes the piece of each token.
    fn spell(&mut self, writing: Writing) -> TextResult<()> {
        let whole = TokenAttributes::UNKNOWN.with(TokenAttributes::CONTROL).with(TokenAttributes::USER_DEFINED);
        for (id, (text, attributes)) in self.texts.iter().zip(&self.attributes).enumerate() {
            let pieces = &mut self.pieces;
            if attributes.any(whole) {
                pieces.extend(text.bytes());
            } else if attributes.any(TokenAttributes::NORMAL) {
                let mut encoded = [0; 4];
                for character in text.chars() {
                    let byte = match writing {
                        Writing::Spaces => (character == SPACE).then_some(b' '),
                        Writing::Bytes => alphabet::byte(character),
                    };
                    match byte {
                        Some(byte) => pieces.push(byte),
                        None => pieces.extend(character.encode_utf8(&mut encoded).bytes()),
                    }
                }
            } else if attributes.any(TokenAttributes::BYTE) {
                let byte = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                let byte = byte.filter(|hex| hex.len() == 2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
                let wrong = || {
                    TextError::metadata(
                        TYPES,
                        format!("says that token {id}, {text:?}, is a byte, but bytes are `<0x00>` to `<0xFF>`"),
                    )
                };
                pieces.push(byte.ok_or_else(wrong)?);
            }
            self.ends.push(pieces.len());
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The tokens' ids.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + use<> {
        (0..).take(self.len())
    }

    /// The token with a text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The token's rank by score.
    pub(super) fn rank(&self, id: u32) -> u32 {
        self.ranks.get(id as usize).copied().unwrap_or_default()
    }

    pub(super) fn text(&self, id: u32) -> &str {
        self.texts.get(id as usize).map_or("", |text| text)
    }

    pub(super) fn attributes(&self, id: u32) -> TokenAttributes {
        self.attributes.get(id as usize).copied().unwrap_or(TokenAttributes::UNDEFINED)
    }

    pub(super) fn set(&mut self, id: u32, attributes: TokenAttributes) {
        if let Some(place) = self.attributes.get_mut(id as usize) {
            *place = attributes;
        }
    }

    pub(super) fn add(&mut self, id: u32, attributes: TokenAttributes) {
        self.set(id, self.attributes(id).with(attributes));
    }

    /// What the token stands for in text, if there is such a token.
    pub(super) fn piece(&self, id: u32) -> Option<&[u8]> {
        let end = *self.ends.get(id as usize)?;
        let start = (id as usize).checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        self.pieces.get(start..end)
    }
}

/// The rank of each token: the same for equal scores.
fn ranks(scores: &[f32]) -> TextResult<Vec<u32>> {
    if let Some(id) = scores.iter().position(|score| score.is_nan()) {
        return Err(TextError::metadata(SCORES, format!("is NaN for token {id}, but must be a number")));
    }
    let mut order: Vec<(f32, usize)> = scores.iter().copied().zip(0..).collect();
    order.sort_unstable_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal));
    let mut ranks = vec![0; scores.len()];
    let (mut rank, mut last) = (0, None);
    for (score, id) in order {
        if last.is_some_and(|last| score < last) {
            rank += 1;
        }
        last = Some(score);
        if let Some(place) = ranks.get_mut(id) {
            *place = rank;
        }
    }
    Ok(ranks)
}
