//! The tokenizer of a model.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use aho_corasick::AhoCorasick;
use ggml::gguf::Reader;

use super::bpe::Bpe;
use super::error::{TextError, TextResult};
use super::metadata::TokenizerMetadata;
use super::special::Defaults;
use super::spm::Spm;
use super::ugm::Ugm;
use super::vocabulary::{TOKENS, TokenAttributes, Vocabulary, Writing};
use super::wordpiece::WordPiece;

const MODEL: &str = "tokenizer.ggml.model";
const SPACE_FIRST: &str = "tokenizer.ggml.add_space_prefix";

/// The tokenizer of a model, from the metadata of its GGUF file.
///
/// It gives the tokens that llama.cpp gives for the same file. There are four kinds (`tokenizer.ggml.model`):
/// byte-level BPE (`gpt2`) with the pre-tokenizers of common models (`tokenizer.ggml.pre`), SentencePiece (`llama`),
/// unigram models (`t5`) and WordPiece (`bert`).
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
    model: Algorithm,
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

enum Algorithm {
    Bpe(Bpe),
    Spm(Spm),
    Ugm(Ugm),
    WordPiece(WordPiece),
}

/// A part of a text.
enum Piece {
    Text(Range<usize>),
    Token(u32),
}

impl Tokenizer {
    /// Reads the tokenizer of a file.
    ///
    /// # Errors
    /// [`TextError::Missing`] and [`TextError::Metadata`] name the key that is missing, of another type, or not supported.
    pub fn from_gguf<S>(reader: &Reader<S>) -> TextResult<Self> {
        let metadata = TokenizerMetadata::new(reader);
        let missing = TextError::Missing { key: MODEL, expected: "\"gpt2\", \"llama\", \"t5\" or \"bert\"" };
        let (vocabulary, model) = match metadata.text(MODEL)?.ok_or(missing)? {
            "gpt2" => {
                let words = Bpe::words(&metadata)?;
                let defaults = Defaults { bos: Some(11), eos: Some(11), add_bos: words.add_bos, ..Defaults::default() };
                let vocabulary = Vocabulary::read(&metadata, Writing::Bytes, defaults)?;
                let bpe = Bpe::read(&metadata, &vocabulary, words)?;
                (vocabulary, Algorithm::Bpe(bpe))
            }
            "llama" => {
                let (bos, eos, unknown) = (Some(1), Some(2), Some(0));
                let defaults = Defaults { bos, eos, unknown, add_bos: true, ..Defaults::default() };
                let vocabulary = Vocabulary::read(&metadata, Writing::Spaces, defaults)?;
                let spm = Spm::new(&vocabulary, metadata.flag(SPACE_FIRST)?.unwrap_or(true));
                (vocabulary, Algorithm::Spm(spm))
            }
            "t5" => {
                let defaults = Defaults { eos: Some(1), unknown: Some(2), add_eos: true, ..Defaults::default() };
                let vocabulary = Vocabulary::read(&metadata, Writing::Spaces, defaults)?;
                let ugm = Ugm::read(&metadata, &vocabulary)?;
                (vocabulary, Algorithm::Ugm(ugm))
            }
            "bert" => {
                let (bos, unknown, separator) = (Some(101), Some(100), Some(102));
                let defaults = Defaults { bos, unknown, separator, ..Defaults::default() };
                let vocabulary = Vocabulary::read(&metadata, Writing::Spaces, defaults)?;
                let words = WordPiece::read(&metadata, &vocabulary)?;
                (vocabulary, Algorithm::WordPiece(words))
            }
            other => {
                let problem = format!("is {other:?}, but only \"gpt2\", \"llama\", \"t5\" and \"bert\" are supported");
                return Err(TextError::metadata(MODEL, problem));
            }
        };
        let sought = TokenAttributes::CONTROL.with(TokenAttributes::UNKNOWN).with(TokenAttributes::USER_DEFINED);
        let mut whole: Vec<u32> = vocabulary.all().filter(|&id| vocabulary.attributes(id).any(sought)).collect();
        whole.sort_by_key(|&id| std::cmp::Reverse(vocabulary.text(id).len()));
        let finder = AhoCorasick::new(whole.iter().map(|&id| vocabulary.text(id)));
        let finder = finder.map_err(|e| TextError::metadata(TOKENS, format!("has too many special tokens: {e}")))?;
        Ok(Self { vocabulary, model, whole, finder })
    }

    /// The tokens of a text.
    ///
    /// `add_special` adds the tokens that the model expects at the beginning and the end of a text. With
    /// `parse_special`, control tokens such as `<|im_end|>` are found in the text; without, they are text like any other.
    ///
    /// # Errors
    /// [`TextError::NoToken`] if a SentencePiece vocabulary has no tokens for a character; byte-level BPE leaves out bytes
    /// without a token, and WordPiece has a token for unknown words. [`TextError::TooLong`] for more than 2^31 - 1 bytes.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> TextResult<Vec<i32>> {
        if i32::try_from(text.len()).is_err() {
            return Err(TextError::TooLong { bytes: text.len() });
        }
        let vocabulary = &self.vocabulary;
        let special = &vocabulary.special;
        let (first, last) = match self.model {
            Algorithm::WordPiece(_) => (special.bos, special.separator),
            _ => (special.first, special.last),
        };
        let mut tokens = Vec::new();
        let signed = |id: Option<u32>| id.filter(|_| add_special).map(u32::cast_signed);
        tokens.extend(signed(first));
        let mut after_special = true;
        for part in self.parts(text, parse_special) {
            match part {
                Piece::Token(id) => tokens.push(id.cast_signed()),
                Piece::Text(ref range) => {
                    let text = text.get(range.clone()).unwrap_or_default();
                    match &self.model {
                        Algorithm::Bpe(bpe) => bpe.encode(vocabulary, text, &mut tokens),
                        Algorithm::Spm(spm) => spm.encode(vocabulary, text, after_special, &mut tokens)?,
                        Algorithm::Ugm(ugm) => ugm.encode(vocabulary, text, &mut tokens),
                        Algorithm::WordPiece(words) => words.encode(vocabulary, text, &mut tokens),
                    }
                }
            }
            after_special = matches!(part, Piece::Token(_));
        }
        tokens.extend(signed(last));
        Ok(tokens)
    }

    /// Divides a text at its special tokens.
    fn parts(&self, text: &str, parse_special: bool) -> Vec<Piece> {
        let vocabulary = &self.vocabulary;
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Piece::Text(0..text.len()));
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
                    Piece::Token(_) => divided.push(part),
                    Piece::Text(range) => {
                        divide(
                            text,
                            range,
                            vocabulary.text(id),
                            attributes.any(TokenAttributes::STRIP_RIGHT),
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

    /// The token that [`Tokenizer::encode`] puts before a text with `add_special`, if the model expects one.
    pub fn added_bos(&self) -> Option<i32> {
        let special = &self.vocabulary.special;
        let first = if matches!(self.model, Algorithm::WordPiece(_)) { special.bos } else { special.first };
        first.map(u32::cast_signed)
    }

    /// The token that ends a text, if the model has one.
    pub fn eos(&self) -> Option<i32> {
        self.vocabulary.special.eos.map(u32::cast_signed)
    }

    /// The bytes that a token stands for: not always whole characters, so [`TokenStream`](super::TokenStream) is the way
    /// to text. Special tokens are their own names, or nothing unless `show_special`.
    ///
    /// # Errors
    /// [`TextError::NoSuchToken`] if there is no such token.
    pub fn piece(&self, id: i32, show_special: bool) -> TextResult<&[u8]> {
        let vocabulary = &self.vocabulary;
        let piece = u32::try_from(id).ok().and_then(|id| Some((vocabulary.piece(id)?, vocabulary.attributes(id))));
        let (piece, attributes) = piece.ok_or(TextError::NoSuchToken { id, vocab_size: vocabulary.len() })?;
        Ok(if attributes.hidden() && !show_special { &[] } else { piece })
    }
}

/// Divides a part of a text wherever it has a special token.
fn divide(text: &str, range: Range<usize>, special: &str, strip_right: bool, id: u32, parts: &mut Vec<Piece>) {
    let mut rest = text.get(range.clone()).unwrap_or_default();
    let at = |rest: &str| range.end - rest.len();
    while let Some((before, after)) = rest.split_once(special) {
        if !before.is_empty() {
            parts.push(Piece::Text(at(rest)..at(rest) + before.len()));
        }
        parts.push(Piece::Token(id));
        let spaces = |c: char| c.is_ascii_whitespace() || c == '\u{B}';
        rest = if strip_right { after.trim_start_matches(spaces) } else { after };
    }
    if !rest.is_empty() {
        parts.push(Piece::Text(at(rest)..range.end));
    }
}
