//! A text of tokens that grows.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ggml_llm::place::{ModelPlace, Progress};
use ggml_llm::text::{StopStrings, TokenStream, Tokenizer};
use ggml_llm::{Batch, Chooser, Error, Model, Session};

use super::interrupt;

/// The one sequence of a session, with its tokens. Where a server with layers is lost, it goes on without the server.
pub(crate) struct Text<'p> {
    place: &'p ModelPlace,
    session: Session,
    tokens: Vec<i32>,
    batch: Batch,
    saved: Saved,
    pub(crate) times: Times,
}

/// The session after some tokens, for the case that a server is lost.
#[derive(Debug, Default)]
struct Saved {
    tokens: Vec<i32>,
    bytes: Vec<u8>,
}

/// A prompt that the context has no room for.
#[derive(Debug, thiserror::Error)]
#[error("the prompt has {tokens} tokens, but {room} fit; --ctx sets how many")]
pub(crate) struct TooLong {
    tokens: usize,
    room: usize,
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

impl<'p> Text<'p> {
    /// A text without tokens for a model that was loaded from this place.
    pub(crate) fn new(place: &'p ModelPlace, model: Arc<Model>) -> Result<Self> {
        Ok(Self {
            place,
            session: place.devices.session(model, 1)?,
            tokens: Vec::new(),
            batch: Batch::new(),
            saved: Saved::default(),
            times: Times::default(),
        })
    }

    /// Computes a text, of which it keeps what it has computed before. The last token's logits are there afterwards, except
    /// after Ctrl-C.
    pub(crate) fn set(&mut self, tokens: &[i32]) -> Result<()> {
        let room = self.session.n_ctx();
        if tokens.len() > room && self.session.model().config().attention.is_some() {
            return Err(TooLong { tokens: tokens.len(), room }.into());
        }
        // The last token is computed again, as its logits are wanted.
        let same = common(&self.tokens, tokens).min(tokens.len().saturating_sub(1));
        let kept = loop {
            match self.keep(same) {
                Ok(kept) => break kept,
                Err(error) => self.go_on_without(error)?,
            }
        };
        self.tokens.truncate(kept);
        let new = tokens.get(kept..).unwrap_or_default();
        let start = Instant::now();
        let mut progress = Progress::new("prompt");
        self.decode(new, &mut |done, total| progress.show(done as u64, total as u64))?;
        self.times.prompt = (self.tokens.len().saturating_sub(kept), start.elapsed());
        self.times.steps = Default::default();
        self.save();
        Ok(())
    }

    /// Leaves at most so many tokens in the session; returns how many.
    fn keep(&mut self, n: usize) -> Result<usize, Error> {
        if self.session.truncate(0, n).is_err() {
            // A recurrent state can't go back.
            self.session.truncate(0, 0)?;
        }
        self.session.len(0)
    }

    /// Computes tokens that continue the text, up to Ctrl-C. `progress` gets the number of those computed, and of all.
    fn decode(&mut self, new: &[i32], progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let before = self.tokens.len();
        self.tokens.extend_from_slice(new);
        loop {
            self.batch.clear();
            let computed = self.session.len(0)?;
            self.batch.prompt(0, self.tokens.get(computed..).unwrap_or_default());
            let total = self.batch.len();
            let mut proceed = |done| {
                progress(done, total);
                !interrupt::seen()
            };
            match self.session.decode_while(&self.batch, &mut proceed) {
                Ok(()) => return Ok(()),
                Err(Error::Stopped { .. }) => {
                    self.tokens.truncate(self.session.len(0)?);
                    return Ok(());
                }
                Err(error) => {
                    let on = self.go_on_without(error);
                    if on.is_err() {
                        self.tokens.truncate(before);
                    }
                    on?;
                }
            }
        }
    }

    /// After the loss of a server: loads the model to what is left, and restores what was saved of the text.
    fn go_on_without(&mut self, error: Error) -> Result<()> {
        let Error::Ggml(lost @ ggml::Error::RpcLost { .. }) = error else { return Err(error.into()) };
        self.session = self.place.load_session(1)?;
        let mut kept = 0;
        if !self.saved.tokens.is_empty() {
            self.session.restore(0, &self.saved.bytes)?;
            kept = self.keep(common(&self.saved.tokens, &self.tokens).min(self.tokens.len().saturating_sub(1)))?;
        }
        // Where nobody reads this, the answer matters more.
        let _unwritten = writeln!(std::io::stderr(), "[{lost}; {kept} tokens were restored]").is_err();
        Ok(())
    }

    /// Saves the text, if a server that has layers can be lost.
    fn save(&mut self) {
        if !self.place.devices.can_lose() {
            return;
        }
        // If that fails because a server is lost, what was saved before counts.
        if let Ok(bytes) = self.session.save(0) {
            self.saved = Saved { tokens: self.tokens.clone(), bytes };
        }
    }

    /// Continues the text by up to `n` tokens, or up to a stop string or the end of its grammar, and writes them to `out` as they come.
    pub(crate) fn go_on(
        &mut self,
        n: usize,
        chooser: &mut Chooser,
        mut stops: StopStrings,
        tokenizer: Option<&Tokenizer>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let mut stream = tokenizer.map(TokenStream::new);
        let mut new = 0;
        let start = Instant::now();
        while new < n && !interrupt::seen() {
            let logits = self.session.logits(0).context("the last token has no logits")?;
            let token = chooser.next(logits, &self.tokens)?;
            new += 1;
            if tokenizer.is_some_and(|t| t.is_end_of_generation(token)) {
                break;
            }
            match &mut stream {
                Some(stream) => write!(out, "{}", stops.push(stream.push(token)?))?,
                None => write!(out, "{token} ")?,
            }
            out.flush()?;
            if stops.stopped() || chooser.is_complete() {
                break;
            }
            self.make_room()?;
            self.decode(&[token], &mut |_, _| ())?;
        }
        if let Some(stream) = &mut stream {
            write!(out, "{}{}", stops.push(stream.finish()), stops.finish())?;
        }
        self.times.steps = (new, start.elapsed());
        self.save();
        Ok(())
    }

    /// Where the context is full, forgets the older half of it, but not its beginning.
    fn make_room(&mut self) -> Result<()> {
        const BEGINNING: usize = 4;
        if self.tokens.len() < self.session.n_ctx() || self.session.model().config().attention.is_none() {
            return Ok(());
        }
        let n = (self.tokens.len() - BEGINNING) / 2;
        let shifted = self.session.shift(0, BEGINNING, n);
        self.tokens.drain(BEGINNING..BEGINNING + n);
        match shifted {
            Ok(()) => Ok(()),
            // A cache that is divided among devices: what is left is computed again.
            Err(Error::Sequence { .. }) => Ok(self.session.truncate(0, 0)?),
            Err(error) => self.go_on_without(error),
        }
    }
}

/// How many tokens two texts begin with.
fn common(a: &[i32], b: &[i32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
