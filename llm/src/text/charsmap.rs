//! SentencePiece's table of replacements (`precompiled_charsmap`): a compact double array, and the replacements.

use ggml::gguf::Array;

use super::error::{TextError, TextResult};
use super::metadata::TokenizerMetadata;

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// A table of replacements.
pub(super) struct CharsMap {
    /// Nodes: the byte that leads to it, whether a text ends there, and where its children are. The node of an end has the
    /// place of its replacement.
    nodes: Vec<u32>,
    /// Replacements, with a NUL behind each.
    texts: String,
}

impl CharsMap {
    /// The table of a file, if it has one.
    pub(super) fn read(metadata: &TokenizerMetadata<'_>) -> TextResult<Option<Self>> {
        let bytes: Vec<u8> = match metadata.array(KEY)? {
            None => return Ok(None),
            Some(Array::U8(bytes)) => bytes.clone(),
            Some(Array::I8(bytes)) => bytes.iter().map(|byte| byte.cast_unsigned()).collect(),
            Some(_) => return Err(TextError::metadata(KEY, "is no array of bytes")),
        };
        let wrong = |what: &str| TextError::metadata(KEY, format!("has {} bytes, {what}", bytes.len()));
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| wrong("but begins with a size of 4 bytes"))?;
        let size = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
        let (nodes, texts) = rest.split_at_checked(size).ok_or_else(|| wrong("fewer than its size says"))?;
        let (nodes, _) = nodes.as_chunks::<4>();
        let texts = String::from_utf8(texts.to_vec()).map_err(|_| wrong("whose replacements are not UTF-8"))?;
        Ok(Some(Self { nodes: nodes.iter().map(|node| u32::from_le_bytes(*node)).collect(), texts }))
    }

    /// The replacement of the longest beginning of a text that has one, and the length of this beginning.
    pub(super) fn replacement(&self, text: &str) -> Option<(&str, usize)> {
        let mut index = base(self.node(0)?);
        let mut longest = None;
        for (at, byte) in text.bytes().enumerate() {
            index ^= u32::from(byte);
            let Some(node) = self.node(index).filter(|node| byte != 0 && node & (1 << 31 | 0xFF) == u32::from(byte))
            else {
                break;
            };
            index ^= base(node);
            if node >> 8 & 1 == 1 {
                longest = self.node(index).map(|value| (value & !(1 << 31), at + 1));
            }
        }
        let (start, length) = longest?;
        let rest = self.texts.get(usize::try_from(start).ok()?..)?;
        // A part of a character has no replacement: texts are whole characters.
        text.is_char_boundary(length).then_some((rest.split_once('\0')?.0, length))
    }

    fn node(&self, index: u32) -> Option<u32> {
        self.nodes.get(usize::try_from(index).ok()?).copied()
    }
}

/// Where the children of a node are, relative to it.
fn base(node: u32) -> u32 {
    (node >> 10) << ((node & 1 << 9) >> 6)
}
