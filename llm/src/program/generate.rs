//! A text of tokens that grows.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ggml_llm::text::{Sampler, TokenStream, Tokenizer};
use ggml_llm::{Batch, Session};

use crate::program::interrupt;

/// The one sequence of a session, with its tokens.
pub(crate) struct Text {
    session: Session,
    tokens: Vec<i32>,
    batch: Batch,
    pub(crate) times: Times,
}

/// How long prompts and steps took, and how many tokens they had.
#[derive(Debug, Default)]
pub(crate) struct Times {
    prompt: (usize, Duration),
    steps: (usize, Duration),
}

impl Times {
    /// A line of statistics.
    pub(crate) fn line(&self) -> String {
        let rate = |(n, time): (usize, Duration)| {
            #[expect(clippy::cast_precision_loss, reason = "for people to read")]
            let speed = n as f64 / time.as_secs_f64().max(1e-9);
            format!("{n} tokens, {speed:.1} per second")
        };
        format!("prompt: {}; answer: {}", rate(self.prompt), rate(self.steps))
    }
}

impl Text {
    pub(crate) fn new(session: Session) -> Self {
        Self { session, tokens: Vec::new(), batch: Batch::new(), times: Times::default() }
    }

    /// Computes a text, of which it keeps what it has computed before. The last token's logits are there afterwards.
    pub(crate) fn set(&mut self, tokens: &[i32]) -> Result<()> {
        let same = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        // The last token is computed again, as its logits are wanted.
        let mut kept = same.min(tokens.len().saturating_sub(1));
        if self.session.truncate(0, kept).is_err() {
            // A recurrent state can't go back.
            self.session.truncate(0, 0)?;
            kept = 0;
        }
        self.tokens.truncate(kept);
        let new = tokens.get(kept..).unwrap_or_default();
        let start = Instant::now();
        self.decode(new)?;
        self.times.prompt = (new.len(), start.elapsed());
        self.times.steps = Default::default();
        Ok(())
    }

    fn decode(&mut self, new: &[i32]) -> Result<()> {
        self.batch.clear();
        self.batch.prompt(0, new);
        self.session.decode(&self.batch)?;
        self.tokens.extend_from_slice(new);
        Ok(())
    }

    /// Continues the text by up to `n` tokens, and writes them to `out` as they come. Returns the new tokens.
    pub(crate) fn go_on(
        &mut self,
        n: usize,
        sampler: &mut Sampler,
        tokenizer: Option<&Tokenizer>,
        out: &mut dyn Write,
    ) -> Result<Vec<i32>> {
        let mut stream = tokenizer.map(TokenStream::new);
        let mut new = Vec::new();
        let start = Instant::now();
        while new.len() < n && !interrupt::seen() {
            let logits = self.session.logits(0).context("the last token has no logits")?;
            let token = sampler.sample(logits, &self.tokens)?;
            new.push(token);
            if tokenizer.is_some_and(|t| t.is_end_of_generation(token)) {
                break;
            }
            match &mut stream {
                Some(stream) => write!(out, "{}", stream.push(token)?)?,
                None => write!(out, "{token} ")?,
            }
            out.flush()?;
            self.make_room()?;
            self.decode(&[token])?;
        }
        if let Some(stream) = &mut stream {
            write!(out, "{}", stream.finish())?;
        }
        self.times.steps = (new.len(), start.elapsed());
        Ok(new)
    }

    /// Where the context is full, forgets the older half of it, but not its beginning.
    fn make_room(&mut self) -> Result<()> {
        const BEGINNING: usize = 4;
        if self.tokens.len() < self.session.n_ctx() || self.session.model().config().attention.is_none() {
            return Ok(());
        }
        let n = (self.tokens.len() - BEGINNING) / 2;
        self.session.shift(0, BEGINNING, n)?;
        self.tokens.drain(BEGINNING..BEGINNING + n);
        Ok(())
    }
}
