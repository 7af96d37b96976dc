//! What the engine is asked for, and what it tells.

use std::time::Instant;

use ggml_llm::Chooser;
use ggml_llm::text::StopStrings;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use crate::failure::Failure;

/// One text of a request.
#[derive(Debug)]
pub(crate) struct Job {
    /// Which of the request's texts it is.
    pub(crate) index: usize,
    pub(crate) tokens: Vec<i32>,
    pub(crate) work: Work,
    /// Has no receiver once the client has gone.
    pub(crate) events: UnboundedSender<(usize, Event)>,
    pub(crate) arrived: Instant,
    pub(crate) deadline: Instant,
    /// The place in the queue.
    pub(crate) place: OwnedSemaphorePermit,
}

impl Job {
    /// Tells that there will be no answer. Nobody may be there to hear it.
    pub(crate) fn fail(&self, failure: Failure) {
        let _unheard = self.events.send((self.index, Event::Failed(failure))).is_err();
    }
}

/// What is wanted of a text.
#[derive(Debug)]
pub(crate) enum Work {
    Generate {
        /// The most new tokens.
        max: usize,
        chooser: Box<Chooser>,
        stops: StopStrings,
        /// Whether the client wants each part of the text at once. What isn't sent wakes nobody who takes the processor
        /// from a computation.
        in_parts: bool,
    },
    /// The embedding of the last token.
    Embed,
}

/// What the engine tells of a job.
#[derive(Debug)]
pub(crate) enum Event {
    Text(String),
    Done(Finish, Usage),
    Embedding(Vec<f32>, Usage),
    Failed(Failure),
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Finish {
    /// By the model, or by a stop string.
    Stop,
    /// By the number of tokens, or the time.
    Length,
}

/// How many tokens there were.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    /// Of the prompt's, those that were computed for others before.
    pub(crate) cached: usize,
    pub(crate) new: usize,
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.cached += other.cached;
        self.new += other.new;
    }
}
