//! The training text in tokens: this repository's questions and answers, or the user's files.

use std::path::PathBuf;
use std::{fmt, fs};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;

use crate::vocabulary::{END, Vocabulary};

/// One in this many bytes of a file, at the end, is held out.
const HELD_OUT: usize = 16;

/// Texts that have nothing to do with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Documents {
    pub(crate) train: Vec<String>,
    pub(crate) held_out: Vec<String>,
}

impl Documents {
    /// The user's files.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self> {
        let read = |path: &PathBuf| fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()));
        Ok(Self::split(paths.iter().map(read).collect::<Result<_>>()?))
    }

    /// Holds out the end of each text.
    pub(crate) fn split(mut texts: Vec<String>) -> Self {
        let end = |text: &mut String| {
            let from = text.len() - text.len() / HELD_OUT;
            text.split_off((0..=from).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0))
        };
        let held_out = texts.iter_mut().map(end).collect();
        Self { train: texts, held_out }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vocabulary, train, held_out, bytes } = self;
        write!(f, "{} tokens to train on, {} held out, ", train.len(), held_out.len())?;
        write!(f, "of {}, with {bytes:.1} bytes each", vocabulary.tokens.len())
    }
}

/// Tokens for training, and others for evaluation.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) vocabulary: Vocabulary,
    pub(crate) train: Vec<i32>,
    pub(crate) held_out: Vec<i32>,
    /// The bytes of a token, on average.
    bytes: f64,
}

impl Text {
    /// Trains a vocabulary of at most `size` tokens.
    ///
    /// # Errors
    /// Fewer than `least` tokens would be held out.
    pub(crate) fn new(documents: &Documents, size: usize, least: usize) -> Result<Self> {
        let vocabulary = Vocabulary::train(&documents.train, size)?;
        let encode = |texts: &[String]| {
            let mut all = Vec::new();
            for text in texts {
                all.extend(vocabulary.encode(text)?);
                all.push(END);
            }
            Ok::<_, anyhow::Error>(all)
        };
        let (train, held_out) = (encode(&documents.train)?, encode(&documents.held_out)?);
        ensure!(held_out.len() >= least, "the text is too short: {} tokens are needed", HELD_OUT * least);
        let bytes: usize = documents.held_out.iter().map(String::len).sum();
        #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
        let bytes = bytes as f64 / held_out.len() as f64;
        Ok(Self { vocabulary, train, held_out, bytes })
    }

    /// The bits per byte of a loss per token.
    pub(crate) fn bits(&self, loss: f64) -> f64 {
        loss / std::f64::consts::LN_2 / self.bytes
    }

    /// `n` tokens from a random position, or rather from the beginning of the next document, if that is near.
    pub(crate) fn draw(&self, n: usize, rng: &mut Rng) -> &[i32] {
        let last = self.train.len().saturating_sub(n);
        let first = rng.usize(..=last);
        let near = self.train.get(first..first + n).unwrap_or(&self.train);
        let next = near.iter().position(|&token| token == END).map_or(first, |end| first + end + 1);
        let first = if next > last { first } else { next };
        self.train.get(first..first + n).unwrap_or(&self.train)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_out_their_ends() {
        let texts = vec!["x".repeat(160), "ü".repeat(16)];
        let found = Documents::split(texts);
        assert_eq!((found.train[0].len(), found.held_out[0].len()), (150, 10));
        assert_eq!((&*found.train[1], &*found.held_out[1]), (&*"ü".repeat(15), "ü"));
    }

    #[test]
    fn text_begins_at_documents() {
        let train = ["ab", "cde", "fg"].map(str::to_owned).to_vec();
        let documents = Documents { train, held_out: vec!["abcd".to_owned()] };
        let text = Text::new(&documents, 257, 5).unwrap();
        assert!((text.train.len(), text.held_out.len()) == (10, 5));
        // Four bytes and an end.
        assert!((text.bits(std::f64::consts::LN_2) - 1.25).abs() < 1e-9);
        let rng = &mut Rng::with_seed(1);
        let found: Vec<_> = (0..100).map(|_| text.draw(4, rng).to_vec()).collect();
        let beginning = |tokens: &Vec<i32>| text.train.windows(5).any(|w| w[0] == END && w[1..] == **tokens);
        assert!(found.iter().filter(|tokens| beginning(tokens)).count() > 50, "{found:?}");
        assert_eq!((text.draw(10, rng), text.draw(11, rng)), (&*text.train, &*text.train));
        let e = Text::new(&documents, 257, 6).unwrap_err().to_string();
        assert!(e.contains("96 tokens are needed"), "{e}");
    }
}
