//! WordPiece: the longest token that a word begins with, then the longest that goes on, and so on.

use unicode_normalization::char::decompose_canonical;
use unicode_properties::{GeneralCategoryGroup as Group, UnicodeGeneralCategory as _};

use super::error::{TextError, TextResult};
use super::metadata::TokenizerMetadata;
use super::vocabulary::{SPACE, TOKENS, Vocabulary};

const LOWER_CASE: &str = "tokenizer.ggml.normalizer.lowercase";
const STRIP_ACCENTS: &str = "tokenizer.ggml.normalizer.strip_accents";

/// WordPiece (`bert`).
pub(super) struct WordPiece {
    lower_case: bool,
    strip_accents: bool,
    /// The token of words that have no others.
    unknown: u32,
    /// The length of the longest token in bytes.
    longest: usize,
}

impl WordPiece {
    pub(super) fn read(metadata: &TokenizerMetadata<'_>, vocabulary: &Vocabulary) -> TextResult<Self> {
        let lower_case = metadata.flag(LOWER_CASE)?.unwrap_or(true);
        let strip_accents = metadata.flag(STRIP_ACCENTS)?.unwrap_or(lower_case);
        let special = &vocabulary.special;
        let (Some(unknown), Some(_), Some(_)) = (special.unknown, special.bos, special.separator) else {
            let problem = "lacks the unknown token, the first token or the separator: \
                tokenizer.ggml.{unknown,bos,seperator}_token_id must name them, or they are 100, 101 and 102";
            return Err(TextError::metadata(TOKENS, problem));
        };
        let longest = vocabulary.all().map(|id| vocabulary.text(id).len()).max().unwrap_or_default();
        Ok(Self { lower_case, strip_accents, unknown, longest })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, tokens: &mut Vec<i32>) {
        let mut word = String::new();
        for character in text.chars() {
            let character = if self.strip_accents { base(character) } else { character };
            if character.is_whitespace() {
                self.end(vocabulary, &mut word, tokens);
                continue;
            }
            let group = character.general_category_group();
            // Unassigned characters are kept, although they are in this group.
            let control = group == Group::Other && is_assigned(character);
            let accent = self.strip_accents && group == Group::Mark;
            if control || accent || matches!(character, '\0' | '\u{FFFD}') {
                continue;
            }
            let symbol = character.is_ascii() && group == Group::Symbol;
            let alone = group == Group::Punctuation || symbol || is_chinese(character);
            if alone {
                self.end(vocabulary, &mut word, tokens);
            }
            word.push(if self.lower_case { lower(character) } else { character });
            if alone {
                self.end(vocabulary, &mut word, tokens);
            }
        }
        self.end(vocabulary, &mut word, tokens);
    }

    /// Appends the tokens of a word, and clears it.
    fn end(&self, vocabulary: &Vocabulary, word: &mut String, tokens: &mut Vec<i32>) {
        if word.is_empty() {
            return;
        }
        word.insert(0, SPACE);
        let before = tokens.len();
        let mut rest = word.as_str();
        while !rest.is_empty() {
            let most = rest.len().min(self.longest);
            let mut ends = (1..=most).rev().filter_map(|end| rest.split_at_checked(end));
            let Some((id, after)) = ends.find_map(|(part, after)| Some((vocabulary.id(part)?, after))) else {
                tokens.truncate(before);
                tokens.push(self.unknown.cast_signed());
                break;
            };
            tokens.push(id.cast_signed());
            rest = after;
        }
        word.clear();
    }
}

/// The character without its accents: the first of its canonical decomposition.
fn base(character: char) -> char {
    let mut first = None;
    decompose_canonical(character, |part| first = first.or(Some(part)));
    first.unwrap_or(character)
}

/// The lower case, where it is a single character.
fn lower(character: char) -> char {
    // The one character whose lower case is two: its first.
    character.to_lowercase().next().unwrap_or(character)
}

fn is_assigned(character: char) -> bool {
    character.general_category() != unicode_properties::GeneralCategory::Unassigned
}

/// Chinese characters are words of their own. The ranges are those of BERT's tokenizer in Rust.
fn is_chinese(character: char) -> bool {
    matches!(
        u32::from(character),
        0x3400..=0x4DBF
            | 0x4E00..=0x9FFF
            | 0xF900..=0xFAFF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0x2F800..=0x2FA1F
    )
}
