//! A sequence of the session: a text that is computed, or what is left of one.

use std::time::Instant;

use ggml_llm::Chooser;
use ggml_llm::text::{StopStrings, TokenStream, Tokenizer};
use tokio::sync::mpsc::UnboundedSender;

use crate::failure::Failure;
use crate::job::{Event, Finish, Job, Usage, Work};
use crate::metrics::Metrics;

/// What a text needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Several tokens.
    Prompt,
    /// One token.
    Step,
    /// An embedding.
    Embed,
}

/// A text, of which the session has the first tokens.
#[derive(Debug, Default)]
pub(super) struct Slot<'e> {
    pub(super) tokens: Vec<i32>,
    /// When, counted in admissions.
    pub(super) admitted: u64,
    running: Option<Running<'e>>,
}

/// For whom, and how.
#[derive(Debug)]
struct Running<'e> {
    index: usize,
    events: UnboundedSender<(usize, Event)>,
    arrived: Instant,
    deadline: Instant,
    usage: Usage,
    goal: Goal<'e>,
}

#[derive(Debug)]
enum Goal<'e> {
    Generate {
        max: usize,
        chooser: Box<Chooser>,
        stops: StopStrings,
        stream: TokenStream<'e>,
        /// The text so far, for a client that wants it in one piece.
        whole: Option<String>,
    },
    Embed,
}

impl Running<'_> {
    /// If there is nobody to hear it, the text is released before the next step.
    fn tell(&self, event: Event) {
        let _unheard = self.events.send((self.index, event)).is_err();
    }
}

impl<'e> Slot<'e> {
    /// Begins a job, of whose tokens `cached` are computed.
    pub(super) fn begin(&mut self, job: Job, cached: usize, admitted: u64, tokenizer: &'e Tokenizer) {
        let Job { index, tokens, work, events, arrived, deadline, place } = job;
        drop(place);
        let goal = match work {
            Work::Generate { max, chooser, stops, in_parts } => {
                let whole = (!in_parts).then(String::new);
                Goal::Generate { max, chooser, stops, stream: TokenStream::new(tokenizer), whole }
            }
            Work::Embed => Goal::Embed,
        };
        let usage = Usage { prompt: tokens.len(), cached, new: 0 };
        self.running = Some(Running { index, events, arrived, deadline, usage, goal });
        (self.tokens, self.admitted) = (tokens, admitted);
    }

    /// Whether nobody waits for it.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.events.is_closed())
    }

    /// Forgets the text.
    pub(super) fn clear(&mut self) {
        self.running = None;
        self.tokens.clear();
    }

    /// What is next if so many tokens are computed.
    pub(super) fn next(&self, computed: usize) -> Next {
        match self.running.as_ref().map(|running| &running.goal) {
            None => Next::Nothing,
            Some(Goal::Embed) => Next::Embed,
            Some(Goal::Generate { .. }) if self.tokens.len() > computed + 1 => Next::Prompt,
            Some(Goal::Generate { .. }) => Next::Step,
        }
    }

    /// How many tokens it can have at its end.
    pub(super) fn size(&self) -> usize {
        let more = self.running.as_ref().map_or(0, |running| match running.goal {
            Goal::Generate { max, .. } => max - running.usage.new,
            Goal::Embed => 0,
        });
        self.tokens.len() + more
    }

    /// Chooses the next token by the logits of the last.
    pub(super) fn sample(&mut self, logits: &[f32], tokenizer: &Tokenizer, metrics: &Metrics) {
        let Some(running) = &mut self.running else { return };
        let Goal::Generate { max, chooser, stops, stream, whole } = &mut running.goal else { return };
        let token = match chooser.next(logits, &self.tokens) {
            Ok(token) => token,
            Err(error) => return self.fail(Failure::server(error.to_string())),
        };
        if running.usage.new == 0 {
            metrics.first.observe(running.arrived.elapsed().as_secs_f64());
        }
        if tokenizer.is_end_of_generation(token) {
            return self.end(Finish::Stop);
        }
        metrics.generated.inc();
        running.usage.new += 1;
        self.tokens.push(token);
        let text = match stream.push(token) {
            Ok(text) => stops.push(text),
            Err(error) => return self.fail(Failure::server(error.to_string())),
        };
        let (stopped, full) = (stops.stopped() || chooser.is_complete(), running.usage.new == *max);
        match whole {
            Some(whole) => whole.push_str(&text),
            None if text.is_empty() => {}
            None => running.tell(Event::Text(text)),
        }
        if stopped {
            self.end(Finish::Stop);
        } else if full {
            self.end(Finish::Length);
        }
    }

    /// The embedding of the last token.
    pub(super) fn embedded(&mut self, embedding: Vec<f32>) {
        if let Some(running) = self.running.take() {
            running.tell(Event::Embedding(embedding, running.usage));
        }
    }

    /// Ends an answer whose time is over; what waits for its first token is late.
    pub(super) fn end_if_late(&mut self, now: Instant) {
        match &self.running {
            Some(running) if running.deadline <= now && running.usage.new == 0 => self.fail(Failure::late()),
            Some(running) if running.deadline <= now => self.end(Finish::Length),
            _ => {}
        }
    }

    fn end(&mut self, finish: Finish) {
        let Some(mut running) = self.running.take() else { return };
        if let Goal::Generate { stops, stream, whole, .. } = &mut running.goal {
            let text = whole.take().unwrap_or_default() + &stops.push(stream.finish()) + &stops.finish();
            if !text.is_empty() {
                running.tell(Event::Text(text));
            }
        }
        running.tell(Event::Done(finish, running.usage));
    }

    /// The text can't be computed. What is computed of it may serve others.
    pub(super) fn fail(&mut self, failure: Failure) {
        if let Some(running) = self.running.take() {
            running.tell(Event::Failed(failure));
        }
    }
}
