//! The tokenizer of a model.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use aho_corasick::AhoCorasick;
use ggml::gguf::Reader;

use super::bpe::Bpe;
use super::error::{Error, Result};
use super::metadata::Metadata;
use super::special::Defaults;
use super::spm::Spm;
use super::vocabulary::{Attributes, TOKENS, Vocabulary, Writing};
use super::wordpiece::WordPiece;

const MODEL: &str = "tokenizer.ggml.model";
const SPACE_FIRST: &str = "tokenizer.ggml.add_space_prefix";

/// The tokenizer of a model, from the metadata of its GGUF file.
///
/// It gives the tokens that llama.cpp gives for the same file. There are three kinds (`tokenizer.ggml.model`):
/// byte-level BPE (`gpt2`) with the pre-tokenizers of common models (`tokenizer.ggml.pre`), SentencePiece (`llama`) and
/// WordPiece (`bert`).
///
/// ```
/// use ggml::gguf::{Reader, Writer};
/// use ggml_llm::text::{TokenStream, Tokenizer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut file = Writer::new();
/// file.set("tokenizer.ggml.model", "gpt2")?;
/// file.set("tokenizer.ggml.pre", "gpt-2")?;
/// file.set("tokenizer.ggml.tokens", ["a", "b", "ab", "Ġ"].map(String::from).to_vec())?;
/// file.set("tokenizer.ggml.merges", vec!["a b".to_string()])?;
///
/// let tokenizer = Tokenizer::from_gguf(&Reader::from_bytes(file.to_bytes()?)?)?;
/// let tokens = tokenizer.encode("ab ba", true, false)?;
/// assert_eq!(tokens, [2, 3, 1, 0]);
///
/// let mut stream = TokenStream::new(&tokenizer);
/// let mut text = String::new();
/// for token in tokens {
///     text += stream.push(token)?;
/// }
/// assert_eq!(text, "ab ba");
/// # Ok(())
/// # }
/// ```
pub struct Tokenizer {
    vocabulary: Vocabulary,
    model: Model,
    /// Tokens that are found in texts before anything else, the longest first.
    whole: Vec<u32>,
    /// Finds out which of them a text has.
    finder: AhoCorasick,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

enum Model {
    Bpe(Bpe),
    Spm(Spm),
    WordPiece(WordPiece),
}

/// A part of a text.
enum Part {
    Text(Range<usize>),
    Token(u32),
}

impl Tokenizer {
    /// Reads the tokenizer of a file.
    ///
    /// # Errors
    /// [`Error::Missing`] and [`Error::Metadata`] name the key that is missing, of another type, or not supported.
    pub fn from_gguf<S>(reader: &Reader<S>) -> Result<Self> {
        let metadata = Metadata::new(reader);
        let missing = Error::Missing { key: MODEL, expected: "\"gpt2\", \"llama\" or \"bert\"" };
        let (vocabulary, model) = match metadata.text(MODEL)?.ok_or(missing)? {
            "gpt2" => {
                let words = Bpe::words(&metadata)?;
                let defaults = Defaults { bos: Some(11), eos: Some(11), add_bos: words.add_bos, ..Defaults::default() };
                let vocabulary = Vocabulary::read(&metadata, Writing::Bytes, defaults)?;
                let bpe = Bpe::read(&metadata, &vocabulary, words)?;
                (vocabulary, Model::Bpe(bpe))
            }
            "llama" => {
                let (bos, eos, unknown) = (Some(1), Some(2), Some(0));
                let defaults = Defaults { bos, eos, unknown, add_bos: true, ..Defaults::default() };
                let vocabulary = Vocabulary::read(&metadata, Writing::Spaces, defaults)?;
                let spm = Spm::new(&vocabulary, metadata.flag(SPACE_FIRST)?.unwrap_or(true));
                (vocabulary, Model::Spm(spm))
            }
            "bert" => {
                let (bos, unknown, separator) = (Some(101), Some(100), Some(102));
                let defaults = Defaults { bos, unknown, separator, ..Defaults::default() };
                let vocabulary = Vocabulary::read(&metadata, Writing::Spaces, defaults)?;
                let words = WordPiece::read(&metadata, &vocabulary)?;
                (vocabulary, Model::WordPiece(words))
            }
            other => {
                let problem = format!("is {other:?}, but only \"gpt2\", \"llama\" and \"bert\" are supported");
                return Err(Error::metadata(MODEL, problem));
            }
        };
        let sought = Attributes::CONTROL.with(Attributes::UNKNOWN).with(Attributes::USER_DEFINED);
        let mut whole: Vec<u32> = vocabulary.all().filter(|&id| vocabulary.attributes(id).any(sought)).collect();
        whole.sort_by_key(|&id| std::cmp::Reverse(vocabulary.text(id).len()));
        let finder = AhoCorasick::new(whole.iter().map(|&id| vocabulary.text(id)));
        let finder = finder.map_err(|e| Error::metadata(TOKENS, format!("has too many special tokens: {e}")))?;
        Ok(Self { vocabulary, model, whole, finder })
    }

    /// The tokens of a text.
    ///
    /// `add_special` adds the tokens that the model expects at the beginning and the end of a text. With
    /// `parse_special`, control tokens such as `<|im_end|>` are found in the text; without, they are text like any other.
    ///
    /// # Errors
    /// [`Error::NoToken`] if a SentencePiece vocabulary has no tokens for a character; byte-level BPE leaves out bytes
    /// without a token, and WordPiece has a token for unknown words. [`Error::TooLong`] for more than 2^31 - 1 bytes.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<i32>> {
        if i32::try_from(text.len()).is_err() {
            return Err(Error::TooLong { bytes: text.len() });
        }
        let vocabulary = &self.vocabulary;
        let special = &vocabulary.special;
        let (first, last) = match self.model {
            Model::WordPiece(_) => (special.bos, special.separator),
            _ => (special.first, special.last),
        };
        let mut tokens = Vec::new();
        let signed = |id: Option<u32>| id.filter(|_| add_special).map(u32::cast_signed);
        tokens.extend(signed(first));
        let mut after_special = true;
        for part in self.parts(text, parse_special) {
            match part {
                Part::Token(id) => tokens.push(id.cast_signed()),
                Part::Text(ref range) => {
                    let text = text.get(range.clone()).unwrap_or_default();
                    match &self.model {
                        Model::Bpe(bpe) => bpe.encode(vocabulary, text, &mut tokens),
                        Model::Spm(spm) => spm.encode(vocabulary, text, after_special, &mut tokens)?,
                        Model::WordPiece(words) => words.encode(vocabulary, text, &mut tokens),
                    }
                }
            }
            after_special = matches!(part, Part::Token(_));
        }
        tokens.extend(signed(last));
        Ok(tokens)
    }

    /// Divides a text at its special tokens.
    fn parts(&self, text: &str, parse_special: bool) -> Vec<Part> {
        let vocabulary = &self.vocabulary;
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part::Text(0..text.len()));
        }
        // Longer tokens have lower indices, and come first.
        let present: BTreeSet<_> =
            self.finder.find_overlapping_iter(text).map(|found| found.pattern().as_usize()).collect();
        for &id in present.iter().filter_map(|&index| self.whole.get(index)) {
            let attributes = vocabulary.attributes(id);
            if attributes.hidden() && !parse_special {
                continue;
            }
            let mut divided = Vec::with_capacity(parts.len());
            for part in parts {
                match part {
                    Part::Token(_) => divided.push(part),
                    Part::Text(range) => {
                        divide(
                            text,
                            range,
                            vocabulary.text(id),
                            attributes.any(Attributes::STRIP_RIGHT),
                            id,
                            &mut divided,
                        );
                    }
                }
            }
            parts = divided;
        }
        parts
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Whether the token ends an answer, such as the end of a text or of a turn.
    pub fn is_end_of_generation(&self, id: i32) -> bool {
        u32::try_from(id).is_ok_and(|id| self.vocabulary.special.ends.contains(&id))
    }

    /// The token that begins a text, if the model has one.
    pub fn bos(&self) -> Option<i32> {
        self.vocabulary.special.bos.map(u32::cast_signed)
    }

    /// The token that ends a text, if the model has one.
    pub fn eos(&self) -> Option<i32> {
        self.vocabulary.special.eos.map(u32::cast_signed)
    }

    /// The bytes that a token stands for: not always whole characters, so [`TokenStream`](super::TokenStream) is the way
    /// to text. Special tokens are their own names, or nothing unless `show_special`.
    ///
    /// # Errors
    /// [`Error::NoSuchToken`] if there is no such token.
    pub fn piece(&self, id: i32, show_special: bool) -> Result<&[u8]> {
        let vocabulary = &self.vocabulary;
        let piece = u32::try_from(id).ok().and_then(|id| Some((vocabulary.piece(id)?, vocabulary.attributes(id))));
        let (piece, attributes) = piece.ok_or(Error::NoSuchToken { id, vocab_size: vocabulary.len() })?;
        Ok(if attributes.hidden() && !show_special { &[] } else { piece })
    }
}

/// Divides a part of a text wherever it has a special token.
fn divide(text: &str, range: Range<usize>, special: &str, strip_right: bool, id: u32, parts: &mut Vec<Part>) {
    let mut rest = text.get(range.clone()).unwrap_or_default();
    let at = |rest: &str| range.end - rest.len();
    while let Some((before, after)) = rest.split_once(special) {
        if !before.is_empty() {
            parts.push(Part::Text(at(rest)..at(rest) + before.len()));
        }
        parts.push(Part::Token(id));
        let spaces = |c: char| c.is_ascii_whitespace() || c == '\u{B}';
        rest = if strip_right { after.trim_start_matches(spaces) } else { after };
    }
    if !rest.is_empty() {
        parts.push(Part::Text(at(rest)..range.end));
    }
}
