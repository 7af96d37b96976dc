//! Unigram models, as T5's, as llama.cpp encodes with them: of all ways to divide a text into tokens, the one whose scores
//! have the greatest sum.

use std::collections::HashMap;

use super::charsmap::CharsMap;
use super::error::{TextError, TextResult};
use super::metadata::TokenizerMetadata;
use super::vocabulary::{SCORES, SPACE, TokenAttributes, Vocabulary, types};

const SPACE_FIRST: &str = "tokenizer.ggml.add_space_prefix";
const MERGE_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
const NFC: &str = "tokenizer.ggml.normalizer.nfc";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";

/// How much worse than the worst token a character without one is.
const PENALTY: f32 = 10.0;

/// Unigram (`t5`).
pub(super) struct Ugm {
    /// What may be in a text.
    tokens: Trie,
    /// What is left as it is.
    user_defined: Trie,
    map: Option<CharsMap>,
    scores: Vec<f32>,
    unknown: u32,
    unknown_score: f32,
    space_first: bool,
    merge_spaces: bool,
}

/// The best way to divide a text up to a place.
#[derive(Debug, Clone, Copy)]
struct Best {
    token: u32,
    /// Where the last token begins.
    start: usize,
    sum: f64,
}

impl Ugm {
    pub(super) fn read(metadata: &TokenizerMetadata<'_>, vocabulary: &Vocabulary) -> TextResult<Self> {
        let missing = TextError::Missing { key: SCORES, expected: "an array of `f32`, a score of each token" };
        let scores = metadata.floats(SCORES, vocabulary.len())?.ok_or(missing)?.to_vec();
        if metadata.flag(NFC)?.unwrap_or(false) {
            return Err(TextError::metadata(NFC, "is true, but texts of \"t5\" are not normalised to NFC here"));
        }
        let missing = TextError::Missing { key: UNKNOWN, expected: "the number of a token" };
        let unknown = vocabulary.special.unknown.ok_or(missing)?;
        let (mut tokens, mut user_defined) = (Trie::default(), Trie::default());
        let found = TokenAttributes::NORMAL.with(TokenAttributes::USER_DEFINED).with(TokenAttributes::UNUSED);
        let mut worst = f32::MAX;
        // As in llama.cpp, which makes tokens such as gpt-oss's user-defined only later.
        let types = types(metadata, vocabulary.len())?;
        for ((id, &score), attributes) in vocabulary.all().zip(&scores).zip(types) {
            if attributes.any(TokenAttributes::NORMAL) {
                worst = worst.min(score);
            }
            if attributes.any(found) {
                tokens.insert(vocabulary.text(id), id);
            }
            if attributes.any(TokenAttributes::USER_DEFINED) {
                user_defined.insert(vocabulary.text(id), id);
            }
        }
        Ok(Self {
            tokens,
            user_defined,
            map: CharsMap::read(metadata)?,
            scores,
            unknown,
            unknown_score: worst - PENALTY,
            space_first: metadata.flag(SPACE_FIRST)?.unwrap_or(false),
            merge_spaces: metadata.flag(MERGE_SPACES)?.unwrap_or(false),
        })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, tokens: &mut Vec<i32>) {
        let text = self.normalise(text);
        let mut best = vec![Best { token: self.unknown, start: 0, sum: f64::MIN }; text.len() + 1];
        if let Some(first) = best.first_mut() {
            first.sum = 0.0;
        }
        for (start, character) in text.char_indices() {
            let sum = best.get(start).map_or(f64::MIN, |best| best.sum);
            let mut consider = |token: u32, length: usize, score: f64| {
                if let Some(there) = best.get_mut(start + length).filter(|there| sum + score > there.sum) {
                    *there = Best { token, start, sum: sum + score };
                }
            };
            let mut is_token = false;
            let rest = text.as_bytes().get(start..).unwrap_or_default();
            self.tokens.prefixes(rest, |token, length| {
                is_token |= length == character.len_utf8();
                let chosen = vocabulary.attributes(token).any(TokenAttributes::USER_DEFINED);
                let score = if chosen { 0.0 } else { self.scores.get(token as usize).copied().unwrap_or_default() };
                consider(token, length, f64::from(score));
            });
            if !is_token {
                consider(self.unknown, character.len_utf8(), f64::from(self.unknown_score));
            }
        }
        let first = tokens.len();
        let (mut end, mut last) = (text.len(), None);
        while let Some(part) = best.get(end).filter(|_| end > 0) {
            // Neighbours without tokens are one unknown token.
            if last != Some(self.unknown) || part.token != self.unknown {
                tokens.push(part.token.cast_signed());
            }
            (end, last) = (part.start, Some(part.token));
        }
        tokens.get_mut(first..).unwrap_or_default().reverse();
    }

    /// The text with characters replaced as the file says, and with [`SPACE`] for spaces.
    fn normalise(&self, text: &str) -> String {
        let (mut normal, mut rest) = (String::with_capacity(text.len() + SPACE.len_utf8()), text);
        let (mut begun, mut in_word) = (false, false);
        while let Some(character) = rest.chars().next() {
            let (part, length) = self.replaced(rest, character);
            for character in part.chars() {
                if character == ' ' {
                    in_word = false;
                    if !self.merge_spaces {
                        normal.push(SPACE);
                    }
                    continue;
                }
                if !in_word && (self.space_first && !begun || self.merge_spaces) {
                    normal.push(SPACE);
                    begun = true;
                }
                in_word = true;
                normal.push(character);
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        normal
    }

    /// What the beginning of a text becomes, and how long that is.
    fn replaced<'t>(&'t self, text: &'t str, first: char) -> (&'t str, usize) {
        // llama.cpp leaves the beginning of a token, too. It also divides characters there, which are kept whole here.
        let begun = self.user_defined.begun(text.as_bytes());
        let kept = (0..=begun).rev().find(|&length| text.is_char_boundary(length)).unwrap_or(0);
        if kept == 0
            && let Some(replacement) = self.map.as_ref().and_then(|map| map.replacement(text))
        {
            return replacement;
        }
        let length = kept.max(first.len_utf8());
        (text.get(..length).unwrap_or_default(), length)
    }
}

/// Texts by their bytes.
#[derive(Debug, Default)]
struct Trie {
    /// The node behind a node and a byte; 0 is the root.
    next: HashMap<(u32, u8), u32>,
    /// The text that ends at a node.
    values: HashMap<u32, u32>,
}

impl Trie {
    fn insert(&mut self, text: &str, value: u32) {
        let mut node = 0;
        for byte in text.bytes() {
            let new = u32::try_from(self.next.len() + 1).unwrap_or(u32::MAX);
            node = *self.next.entry((node, byte)).or_insert(new);
        }
        self.values.insert(node, value);
    }

    /// How much of another text is the beginning of some text.
    fn begun(&self, bytes: &[u8]) -> usize {
        let mut node = 0;
        let goes_on = |&&byte: &&u8| self.next.get(&(node, byte)).map(|&next| node = next).is_some();
        bytes.iter().take_while(goes_on).count()
    }

    /// Calls `found` with each text that another begins with, and its length; the shortest first.
    fn prefixes(&self, bytes: &[u8], mut found: impl FnMut(u32, usize)) {
        let mut node = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let Some(&next) = self.next.get(&(node, byte)) else { return };
            node = next;
            if let Some(&value) = self.values.get(&node) {
                found(value, at + 1);
            }
        }
    }
}
