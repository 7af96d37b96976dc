//! The tokens: byte-level BPE, trained on the text and written into the model's file.

use std::collections::HashSet;

use anyhow::{Context as _, Result, anyhow};
use ggml::gguf::{Array, Reader, Strings, Value, Writer};
use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::{
    Model as _, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, Trainer as _,
};

const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";
/// The token behind each document.
pub(crate) const END: i32 = 0;
const END_NAME: &str = "<|endoftext|>";

/// Tokens by their numbers, and the merges that make them from bytes.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) tokens: Vec<String>,
    pub(crate) merges: Vec<[String; 2]>,
    model: BPE,
}

impl Vocabulary {
    /// Trains `size` tokens: the end, the bytes, and what is frequent. A short text has fewer.
    pub(crate) fn train(texts: &[String], size: usize) -> Result<Self> {
        let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
        let trainer = BpeTrainer::builder().vocab_size(size - 1).show_progress(false).initial_alphabet(alphabet);
        let (mut trainer, mut model) = (trainer.build(), BPE::default());
        trainer.feed(texts.iter(), words).map_err(fault)?;
        trainer.train(&mut model).map_err(fault)?;
        let json = serde_json::to_value(&model)?;
        let mut by_id: Vec<_> = model.get_vocab().into_iter().map(|(token, id)| (id, token)).collect();
        by_id.sort_unstable();
        let tokens = std::iter::once(END_NAME.to_owned()).chain(by_id.into_iter().map(|(_, token)| token));
        let merges = serde_json::from_value(json.get("merges").context("a model has merges")?.clone())?;
        Self::new(tokens.collect(), merges)
    }

    fn new(tokens: Vec<String>, merges: Vec<[String; 2]>) -> Result<Self> {
        let ids: Vocab = tokens.iter().cloned().zip(0..).collect();
        let pairs = merges.iter().cloned().map(|[a, b]| (a, b)).collect();
        let model = BPE::builder().vocab_and_merges(ids, pairs).build().map_err(fault)?;
        Ok(Self { tokens, merges, model })
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<i32>> {
        let mut tokens = Vec::new();
        for word in words(text).map_err(fault)? {
            let found = self.model.tokenize(&word).map_err(fault)?;
            tokens.extend(found.iter().map(|token| token.id.cast_signed()));
        }
        Ok(tokens)
    }

    /// The bytes of a token; none of the end.
    pub(crate) fn bytes(&self, token: i32) -> Vec<u8> {
        let token = usize::try_from(token).ok().filter(|&id| id != 0).and_then(|id| self.tokens.get(id));
        let alphabet: Vec<_> = alphabet().collect();
        let byte = |c| alphabet.iter().position(|&other| other == c).and_then(|byte| u8::try_from(byte).ok());
        token.map(|token| token.chars().filter_map(byte).collect()).unwrap_or_default()
    }

    /// The vocabulary of a model's file.
    pub(crate) fn read<S>(file: &Reader<S>) -> Result<Self> {
        let texts = |key| match file.metadata(key).and_then(Value::as_array) {
            Some(Array::String(texts)) => Ok(texts),
            _ => Err(anyhow!("the file has no texts `{key}`")),
        };
        let merge = |line: &str| line.split_once(' ').map(|(a, b)| [a, b].map(str::to_owned));
        let merges = texts(MERGES)?.iter().map(merge).collect::<Option<_>>().context("a merge is no pair")?;
        Self::new(texts(TOKENS)?.iter().map(str::to_owned).collect(), merges)
    }

    /// Writes what [`read`](Self::read) reads, and what other programs want to know.
    pub(crate) fn write(&self, file: &mut Writer) -> Result<()> {
        let merges: Strings = self.merges.iter().map(|[a, b]| format!("{a} {b}")).collect();
        // 1 for text, 3 for the token that ends it.
        let kinds: Vec<_> = (0..).zip(&self.tokens).map(|(id, _)| if id == END { 3 } else { 1 }).collect();
        file.set("tokenizer.ggml.model", "gpt2")?.set("tokenizer.ggml.pre", "gpt-2")?;
        file.set(TOKENS, self.tokens.iter().collect::<Strings>())?.set(MERGES, merges)?;
        file.set("tokenizer.ggml.token_type", kinds)?.set("tokenizer.ggml.add_bos_token", false)?;
        file.set("tokenizer.ggml.bos_token_id", END.cast_unsigned())?;
        file.set("tokenizer.ggml.eos_token_id", END.cast_unsigned())?;
        Ok(())
    }
}

/// The words of a text, in which tokens merge, by the pattern of GPT-2. Characters stand for bytes.
fn words(text: &str) -> tokenizers::Result<Vec<String>> {
    let mut parts = PreTokenizedString::from(text);
    ByteLevel::new(false, false, true).pre_tokenize(&mut parts)?;
    let parts = parts.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
    Ok(parts.into_iter().map(|(word, _, _)| word.to_owned()).collect())
}

/// The characters that stand for bytes. Those that are printable in Latin-1 stand for themselves, the others are the characters from
/// U+0100 on.
fn alphabet() -> impl Iterator<Item = char> {
    let mut others = '\u{100}'..;
    (0..=u8::MAX).filter_map(move |byte| {
        let itself = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
        if itself { Some(char::from(byte)) } else { others.next() }
    })
}

fn fault(error: tokenizers::Error) -> anyhow::Error {
    anyhow::Error::from_boxed(error).context("tokens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_text_again() {
        let text = "one two three, one two: größer\n\n  世界";
        let vocabulary = Vocabulary::train(&[text.to_owned(), "one two".to_owned()], 260).unwrap();
        assert_eq!(vocabulary.tokens.len(), 260);
        let tokens = vocabulary.encode(text).unwrap();
        assert!(tokens.len() < text.len() && !tokens.contains(&END), "{tokens:?}");
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| vocabulary.bytes(token)).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert!(
            vocabulary.bytes(END).is_empty() && vocabulary.bytes(-1).is_empty() && vocabulary.bytes(260).is_empty()
        );
    }

    #[test]
    fn file_has_the_vocabulary() {
        let vocabulary = Vocabulary::train(&["one two one two".to_owned()], 261).unwrap();
        let mut file = Writer::new();
        vocabulary.write(&mut file).unwrap();
        let read = Vocabulary::read(&Reader::from_bytes(file.to_bytes().unwrap()).unwrap()).unwrap();
        assert_eq!((&read.tokens, &read.merges), (&vocabulary.tokens, &vocabulary.merges));
        assert_eq!(read.encode("one two").unwrap(), vocabulary.encode("one two").unwrap());
        file.remove(MERGES);
        let e = Vocabulary::read(&Reader::from_bytes(file.to_bytes().unwrap()).unwrap()).unwrap_err().to_string();
        assert!(e.contains("no texts `tokenizer.ggml.merges`"), "{e}");
    }
}
