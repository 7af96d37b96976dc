//! What can go wrong with text.

use std::borrow::Cow;

/// The result of this module's functions.
pub type TextResult<T, E = TextError> = Result<T, E>;

/// What can go wrong with text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The file lacks a metadata key.
    #[error("the file has no `{key}`, which must be {expected}")]
    Missing {
        /// The metadata key.
        key: &'static str,
        /// What its value must be.
        expected: &'static str,
    },
    /// A metadata value is of another type, or contradicts another value.
    #[error("`{key}` {problem}")]
    Metadata {
        /// The metadata key.
        key: &'static str,
        /// What is wrong with its value, and what is expected.
        problem: Cow<'static, str>,
    },
    /// A character that neither has a token nor can be made of byte tokens.
    #[error("the vocabulary has no token for {character:?} and none for its byte 0x{byte:02X} (`<0x{byte:02X}>`)")]
    NoToken {
        /// The character.
        character: char,
        /// The first of its bytes that has no token.
        byte: u8,
    },
    /// The text is longer than 2^31 - 1 bytes.
    #[error("the text has {bytes} bytes; split it into texts of at most {most} bytes", most = i32::MAX)]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error("there is no token {id}: the vocabulary has {vocab_size} tokens, numbered from 0")]
    NoSuchToken {
        /// The token id.
        id: i32,
        /// The number of tokens.
        vocab_size: usize,
    },
    /// A chat template that does not parse, or that failed for these messages.
    #[error("the chat template{}: {message}", line.map_or_else(String::new, |line| format!(", line {line}")))]
    Template {
        /// The line in the template, counted from 1, if it is known.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// A sampler's option is out of range.
    #[error("`{option}` is {value}, but must be {expected}")]
    SamplerOption {
        /// The option.
        option: &'static str,
        /// Its value.
        value: f32,
        /// Its range.
        expected: &'static str,
    },
    /// Logits from which no token can be chosen.
    #[error("no token can be chosen: {problem}")]
    Logits {
        /// What is wrong with them.
        problem: String,
    },
}

impl TextError {
    pub(super) fn metadata(key: &'static str, problem: impl Into<Cow<'static, str>>) -> Self {
        Self::Metadata { key, problem: problem.into() }
    }
}
