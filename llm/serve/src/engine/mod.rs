//! The thread that has the session: it computes whoever is there, step by step.

mod admit;
mod slot;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ggml_llm::place::ModelPlace;
use ggml_llm::text::Tokenizer;
use ggml_llm::{Batch, Error, Session};

use crate::failure::Failure;
use crate::job::Job;
use crate::metrics::Metrics;
use slot::{Next, Slot};

/// What the engine computes with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) place: ModelPlace,
    pub(crate) session: Session,
    pub(crate) n_seq: usize,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) metrics: Metrics,
}

/// Computes jobs until nobody can send any.
///
/// # Errors
///
/// If the model can't be computed any more.
pub(crate) fn run(parts: &mut Parts, jobs: &Receiver<Job>) -> Result<()> {
    let Parts { place, session, n_seq, tokenizer, metrics } = parts;
    let slots = (0..*n_seq).map(|_| Slot::default()).collect();
    let mut engine =
        Engine { place, session, tokenizer, metrics, slots, waiting: VecDeque::new(), batch: Batch::new(), clock: 0 };
    while engine.receive(jobs) {
        engine.release();
        engine.admit()?;
        engine.observe();
        engine.embed()?;
        engine.prefill()?;
        engine.step()?;
    }
    Ok(())
}

struct Engine<'e> {
    place: &'e ModelPlace,
    session: &'e mut Session,
    tokenizer: &'e Tokenizer,
    metrics: &'e Metrics,
    /// One for each sequence of the session.
    slots: Vec<Slot<'e>>,
    waiting: VecDeque<Job>,
    batch: Batch,
    /// Counts admissions.
    clock: u64,
}

impl Engine<'_> {
    /// Takes what has come, and waits for it if there is nothing to do. Returns whether to go on.
    fn receive(&mut self, jobs: &Receiver<Job>) -> bool {
        let idle = self.waiting.is_empty() && self.slots.iter().all(Slot::is_idle);
        if idle {
            self.observe();
            match jobs.recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(_) => return false,
            }
        }
        loop {
            match jobs.try_recv() {
                Ok(job) => self.waiting.push_back(job),
                // Or nobody can ask any more: what was asked for is computed, or released.
                Err(_) => return true,
            }
        }
    }

    /// Lets go of jobs whose client has gone, or whose time is over.
    fn release(&mut self) {
        let now = Instant::now();
        self.waiting.retain(|job| {
            if job.events.is_closed() {
                self.metrics.cancelled.inc();
                return false;
            }
            if job.deadline > now {
                return true;
            }
            job.fail(Failure::late());
            false
        });
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if slot.is_cancelled() {
                self.metrics.cancelled.inc();
                slot.clear();
                // There is such a sequence, and all of it may go.
                let _kept = self.session.truncate(i, 0).is_err();
            } else {
                slot.end_if_late(now);
            }
        }
    }

    fn observe(&self) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.running.set(count(self.slots.iter().filter(|slot| !slot.is_idle()).count()));
        self.metrics.waiting.set(count(self.waiting.len()));
        self.metrics.room.set(self.session.room().map_or(-1, count));
    }

    /// How many tokens of a text the session has.
    fn computed(&self, i: usize) -> usize {
        self.session.len(i).unwrap_or(0)
    }

    /// What is to be computed of the texts that wait for it in this way, in the order of their admission.
    fn due(&self, next: Next) -> Vec<usize> {
        let mut due: Vec<_> = (self.slots.iter().enumerate())
            .filter(|(i, slot)| slot.next(self.computed(*i)) == next)
            .map(|(i, slot)| (slot.admitted, i))
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, i)| i).collect()
    }

    /// Adds tokens of a text to the batch, `most` at most; returns whether its last one is among them, whose output is wanted.
    fn add(&mut self, i: usize, most: usize) -> bool {
        let computed = self.computed(i);
        let Some(slot) = self.slots.get(i) else { return false };
        let end = slot.tokens.len().min(computed + most);
        for (place, &token) in slot.tokens.iter().enumerate().take(end).skip(computed) {
            self.batch.push(i, token, place + 1 == slot.tokens.len());
        }
        end == slot.tokens.len()
    }

    /// A part of a text whose embedding is wanted.
    fn embed(&mut self) -> Result<()> {
        let Some(&i) = self.due(Next::Embed).first() else { return Ok(()) };
        self.batch.clear();
        let whole = self.add(i, self.place.devices.batch);
        if !self.compute(&[i], true)? {
            return Ok(());
        }
        if let (true, Some(slot)) = (whole, self.slots.get_mut(i)) {
            slot.embedded(self.session.unit_embedding(0).unwrap_or_default());
        }
        Ok(())
    }

    /// Parts of prompts, as many tokens as are computed at once.
    fn prefill(&mut self) -> Result<()> {
        self.batch.clear();
        let (mut left, mut all, mut whole) = (self.place.devices.batch, Vec::new(), Vec::new());
        for i in self.due(Next::Prompt) {
            if left == 0 {
                break;
            }
            let before = self.batch.len();
            if self.add(i, left) {
                whole.push(i);
            }
            left -= self.batch.len() - before;
            all.push(i);
        }
        if all.is_empty() || !self.compute(&all, false)? {
            return Ok(());
        }
        self.sample(&whole);
        Ok(())
    }

    /// One token of each text that is at its end.
    fn step(&mut self) -> Result<()> {
        self.batch.clear();
        let all = self.due(Next::Step);
        for &i in &all {
            self.add(i, 1);
        }
        if all.is_empty() || !self.compute(&all, false)? {
            return Ok(());
        }
        self.metrics.steps.inc();
        self.sample(&all);
        Ok(())
    }

    /// The next token of each of these, whose outputs were computed in this order.
    fn sample(&mut self, slots: &[usize]) {
        for (row, &i) in slots.iter().enumerate() {
            if let (Some(slot), Some(logits)) = (self.slots.get_mut(i), self.session.logits(row)) {
                slot.sample(logits, self.tokenizer, self.metrics);
            }
        }
    }

    /// Computes the batch, of these texts; returns whether that went well. Else they go on otherwise, or have failed.
    fn compute(&mut self, slots: &[usize], embeddings: bool) -> Result<bool> {
        let start = Instant::now();
        let result = if embeddings { self.session.embed(&self.batch) } else { self.session.decode(&self.batch) };
        self.metrics.busy.inc_by(start.elapsed().as_secs_f64());
        match result {
            Ok(()) => Ok(true),
            Err(error) => self.recover(&error, slots).map(|()| false),
        }
    }

    /// After a failure, makes a new session, for which all texts are computed again. If a server was lost, the model is loaded
    /// to what is left; else these texts have failed.
    #[expect(clippy::print_stderr, reason = "the server's log")]
    fn recover(&mut self, error: &Error, slots: &[usize]) -> Result<()> {
        eprintln!("[{error}; texts are computed again]");
        self.metrics.lost.inc();
        let session = if is_loss(error) {
            self.place.load_session(self.slots.len())
        } else {
            for &i in slots {
                if let Some(slot) = self.slots.get_mut(i) {
                    slot.fail(Failure::server(error.to_string()));
                }
            }
            self.place.devices.session(Arc::clone(self.session.model()), self.slots.len())
        };
        *self.session = session.with_context(|| format!("after: {error}"))?;
        for slot in self.slots.iter_mut().filter(|slot| slot.is_idle()) {
            slot.clear();
        }
        Ok(())
    }
}

/// Whether an RPC server was lost.
fn is_loss(error: &Error) -> bool {
    matches!(error, Error::Ggml(ggml::Error::RpcLost { .. }))
}
