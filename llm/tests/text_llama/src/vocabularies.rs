//! Vocabularies, trained on random texts and written as files.

use std::collections::HashSet;

use ggml::gguf::Writer;
use serde_json::Value;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;
use tokenizers::tokenizer::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, Trainer as _};

use crate::texts::Texts;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Types of tokens.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Special tokens of all kinds: some begin others, some are found by their texts, and some have types that their texts
/// contradict.
const SPECIAL: &[(&str, i32)] = &[
    ("<s>", CONTROL),
    ("</s>", CONTROL),
    ("<unk>", UNKNOWN),
    ("<|endoftext|>", CONTROL),
    ("<|im_start|>", CONTROL),
    ("<|im_end|>", USER_DEFINED),
    ("<|im", USER_DEFINED),
    ("<|im_start|>system", CONTROL),
    ("<|channel|>", CONTROL),
    ("<|end|>", CONTROL),
    ("<|return|>", CONTROL),
    ("<|call|>", CONTROL),
    ("<|fim_pad|>", NORMAL),
    ("<|fim_prefix|>", USER_DEFINED),
    ("<|file_sep|>", CONTROL),
    ("<tool>", USER_DEFINED),
    ("▁▁▁▁", USER_DEFINED),
    ("\n\n\n", USER_DEFINED),
    ("é€", USER_DEFINED),
    ("<unused0>", UNUSED),
    ("<undefined0>", 0),
];

/// The texts of special tokens.
pub fn special() -> Vec<&'static str> {
    SPECIAL.iter().map(|&(text, _)| text).collect()
}

/// A vocabulary: each token with its type and score.
struct Tokens {
    texts: Vec<String>,
    types: Vec<i32>,
    scores: Vec<f32>,
}

impl Tokens {
    fn new() -> Self {
        Self { texts: Vec::new(), types: Vec::new(), scores: Vec::new() }
    }

    fn add(&mut self, text: impl Into<String>, kind: i32, score: f32) {
        let text = text.into();
        // llama.cpp reads tokens as C strings.
        if !text.contains('\0') && !self.texts.contains(&text) {
            self.texts.push(text);
            self.types.push(kind);
            self.scores.push(score);
        }
    }

    fn special(&mut self, which: impl Fn(&str) -> bool) {
        for &(text, kind) in SPECIAL.iter().filter(|(text, _)| which(text)) {
            self.add(text, kind, 0.0);
        }
    }

    fn id(&self, text: &str) -> Result<u32> {
        let place = self.texts.iter().position(|other| other == text);
        Ok(place.ok_or_else(|| format!("no {text}"))?.try_into()?)
    }

    fn write(&self, model: &str) -> Result<Writer> {
        let mut writer = Writer::new();
        writer.set("general.architecture", "llama")?;
        writer.set("tokenizer.ggml.model", model)?;
        writer.set("tokenizer.ggml.tokens", self.texts.clone())?;
        writer.set("tokenizer.ggml.token_type", self.types.clone())?;
        writer.set("tokenizer.ggml.scores", self.scores.clone())?;
        Ok(writer)
    }
}

/// Byte-level BPE, without the name of a pre-tokenizer.
pub fn bytes(corpus: &[String]) -> Result<Writer> {
    let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
    let mut trainer = BpeTrainer::builder().vocab_size(4000).show_progress(false).initial_alphabet(alphabet).build();
    trainer.feed(corpus.iter(), |text| {
        // Words, and others that no pre-tokenizer makes: a wrong word then gives other tokens.
        let mut words = spell(text, true)?;
        let characters: Vec<char> = text.chars().collect();
        for part in characters.chunks(7) {
            words.extend(spell(&part.iter().collect::<String>(), false)?);
        }
        Ok(words)
    })?;
    let (learnt, merges) = train(&trainer)?;
    let mut tokens = Tokens::new();
    for text in learnt {
        tokens.add(text, NORMAL, 0.0);
    }
    tokens.special(|_| true);
    let mut writer = tokens.write("gpt2")?;
    writer.set("tokenizer.ggml.merges", merges.iter().map(|[a, b]| format!("{a} {b}")).collect::<Vec<_>>())?;
    writer.set("tokenizer.ggml.bos_token_id", tokens.id("<s>")?)?;
    writer.set("tokenizer.ggml.eos_token_id", tokens.id("<|im_end|>")?)?;
    Ok(writer)
}

fn spell(text: &str, words: bool) -> Result<Vec<String>> {
    let mut parts = PreTokenizedString::from(text);
    ByteLevel::new(false, false, words).pre_tokenize(&mut parts)?;
    let parts = parts.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
    Ok(parts.into_iter().map(|(text, _, _)| text.to_owned()).collect())
}

/// The tokens in the order of their ids, and the merges.
fn train(trainer: &BpeTrainer) -> Result<(Vec<String>, Vec<[String; 2]>)> {
    let mut model = BPE::default();
    trainer.train(&mut model)?;
    let json = serde_json::to_value(&model)?;
    let merges = serde_json::from_value(json["merges"].clone())?;
    Ok((by_id(&json)?, merges))
}

fn by_id(json: &Value) -> Result<Vec<String>> {
    let vocabulary = json["vocab"].as_object().ok_or("no vocabulary")?;
    let mut tokens: Vec<_> = vocabulary.iter().map(|(text, id)| (id.as_u64(), text.clone())).collect();
    tokens.sort();
    Ok(tokens.into_iter().map(|(_, text)| text).collect())
}

/// A text's words, each with the space before it as SentencePiece writes it.
fn words_with_spaces(text: &str) -> Result<Vec<String>> {
    let mut parts = PreTokenizedString::from(text.replace(' ', "▁"));
    parts.split(|_, part| part.split('▁', SplitDelimiterBehavior::MergedWithNext))?;
    let parts = parts.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
    Ok(parts.into_iter().map(|(text, _, _)| text.to_owned()).collect())
}

/// SentencePiece: scores by the order of merges, or at random with many equal ones.
pub fn spaces(corpus: &[String], texts: &mut Texts, random: bool) -> Result<Writer> {
    let mut trainer = BpeTrainer::builder().vocab_size(4000).show_progress(false).limit_alphabet(1500).build();
    trainer.feed(corpus.iter(), words_with_spaces)?;
    let (learnt, merges) = train(&trainer)?;
    let mut tokens = Tokens::new();
    for (text, kind) in [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)] {
        tokens.add(text, kind, 0.0);
    }
    for byte in 0..=u8::MAX {
        tokens.add(format!("<0x{byte:02X}>"), BYTE, 0.0);
    }
    tokens.special(|_| true);
    let mut score = -1.0;
    for text in merges.iter().map(|pair| pair.concat()).chain(learnt) {
        tokens.add(text, NORMAL, if random { -(texts.below(40) as f32) } else { score });
        score -= 1.0;
    }
    tokens.write("llama")
}

/// A unigram model: tokens of SentencePiece with random scores, unused ones among them.
pub fn scores(corpus: &[String], texts: &mut Texts) -> Result<Writer> {
    let mut trainer = BpeTrainer::builder().vocab_size(3000).show_progress(false).limit_alphabet(900).build();
    trainer.feed(corpus.iter(), words_with_spaces)?;
    let mut tokens = Tokens::new();
    for (text, kind) in [("<pad>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN)] {
        tokens.add(text, kind, 0.0);
    }
    // Of several tokens for padding, llama.cpp takes any. Where a text has the beginning of a user's token, and be it a part of a
    // character, llama.cpp doesn't normalise this beginning; so there are none here that begin as what is replaced.
    tokens.special(|text| !["<|fim_pad|>", "▁▁▁▁", "\n\n\n", "é€"].contains(&text));
    for text in train(&trainer)?.0 {
        let kind = if texts.chance(50) { UNUSED } else { NORMAL };
        tokens.add(text, kind, -(texts.below(4000) as f32) / 256.0);
    }
    tokens.write("t5")
}

/// WordPiece.
pub fn words(corpus: &[String], lower_case: bool) -> Result<Writer> {
    let mut trainer = WordPieceTrainer::builder().vocab_size(4000).show_progress(false).limit_alphabet(1500).build();
    trainer.feed(corpus.iter(), |text| {
        let text = if lower_case { text.to_lowercase() } else { text.to_owned() };
        let mut words: Vec<String> = text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect();
        words.retain(|word| !word.is_empty());
        words.extend(text.chars().filter(|c| !c.is_alphanumeric() && !c.is_whitespace()).map(String::from));
        Ok(words)
    })?;
    let mut model = WordPiece::default();
    trainer.train(&mut model)?;
    let mut tokens = Tokens::new();
    for (text, kind) in [("[PAD]", CONTROL), ("[UNK]", CONTROL), ("[CLS]", CONTROL), ("[SEP]", CONTROL)] {
        tokens.add(text, kind, 0.0);
    }
    // Of several tokens for padding, llama.cpp takes any.
    tokens.special(|text| text != "<|fim_pad|>");
    for text in by_id(&serde_json::to_value(&model)?)? {
        match text.strip_prefix("##") {
            Some(rest) => tokens.add(rest, NORMAL, 0.0),
            None => tokens.add(format!("▁{text}"), NORMAL, 0.0),
        }
    }
    let mut writer = tokens.write("bert")?;
    for (key, text) in [
        ("tokenizer.ggml.bos_token_id", "[CLS]"),
        ("tokenizer.ggml.unknown_token_id", "[UNK]"),
        ("tokenizer.ggml.seperator_token_id", "[SEP]"),
        ("tokenizer.ggml.padding_token_id", "[PAD]"),
    ] {
        writer.set(key, tokens.id(text)?)?;
    }
    writer.set("tokenizer.ggml.normalizer.lowercase", lower_case)?;
    Ok(writer)
}
