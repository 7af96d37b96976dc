//! Byte-level BPE.

use std::collections::HashMap;

use super::alphabet;
use super::error::{TextError, TextResult};
use super::merge::{Merge, Merger};
use super::metadata::TokenizerMetadata;
use super::pre::{self, PreTokenizer};
use super::vocabulary::{NONE, Vocabulary};

/// Whether texts get a first space.
const SCHEME: &str = "tokenizer.ggml.metaspace.prepend_scheme";
const MERGES: &str = "tokenizer.ggml.merges";

/// Byte-level BPE (`gpt2`).
pub(super) struct Bpe {
    words: PreTokenizer,
    /// What pairs of tokens become.
    merges: HashMap<(u32, u32), Merge>,
    /// The token of each byte, or [`NONE`].
    bytes: Vec<u32>,
}

impl Bpe {
    /// The pre-tokenizer, which also decides whether texts begin with a special token.
    pub(super) fn words(metadata: &TokenizerMetadata<'_>) -> TextResult<PreTokenizer> {
        if let Some(scheme) = metadata.text(SCHEME)?.filter(|scheme| *scheme != "never") {
            return Err(TextError::metadata(
                SCHEME,
                format!("is {scheme:?}, but only \"never\" is supported for \"gpt2\""),
            ));
        }
        PreTokenizer::new(metadata.text(pre::KEY)?.unwrap_or("default"))
    }

    pub(super) fn read(
        metadata: &TokenizerMetadata<'_>,
        vocabulary: &Vocabulary,
        words: PreTokenizer,
    ) -> TextResult<Self> {
        let missing =
            TextError::Missing { key: MERGES, expected: "an array of strings, pairs of tokens with a space between" };
        let lines = metadata.texts(MERGES)?.ok_or(missing)?;
        let mut merges = HashMap::with_capacity(lines.len());
        for (rank, line) in (0..).zip(lines.iter()) {
            let wrong = |what: &str| TextError::metadata(MERGES, format!("has {line:?} as value {rank}, {what}"));
            // A space may be the first token's first character.
            let space = line.bytes().skip(1).position(|byte| byte == b' ').map(|at| at + 1);
            let (left, right) = space
                .and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)))
                .ok_or_else(|| wrong("which is not two tokens with a space between"))?;
            let id =
                |text: &str| vocabulary.id(text).ok_or_else(|| wrong(&format!("but {text:?} is not among the tokens")));
            let (pair, token) = ((id(left)?, id(right)?), id(&[left, right].concat())?);
            merges.entry(pair).or_insert(Merge { rank, token });
        }
        let token = |&character: &char| vocabulary.id(character.encode_utf8(&mut [0; 4])).unwrap_or(NONE);
        Ok(Self { words, merges, bytes: alphabet::CHARACTERS.iter().map(token).collect() })
    }

    /// Appends the tokens of a text. Bytes without a token are left out, as in llama.cpp.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, tokens: &mut Vec<i32>) {
        let (mut merger, mut spelled) = (Merger::default(), String::new());
        self.words.split(text, &mut |word| {
            if self.words.whole_words {
                spelled.clear();
                spelled.extend(word.bytes().map(alphabet::character));
                if let Some(id) = vocabulary.id(&spelled) {
                    tokens.push(id.cast_signed());
                    return;
                }
            }
            merger.clear();
            for byte in word.bytes() {
                merger.push(1, self.bytes.get(usize::from(byte)).copied().unwrap_or(NONE));
            }
            let merged = merger.merge(|left, right| self.merges.get(&(left.token, right.token)).copied());
            tokens.extend(merged.map(|symbol| symbol.token).filter(|&id| id != NONE).map(u32::cast_signed));
        });
    }
}
