//! Numbers for Prometheus.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Answer {
    pub(crate) path: String,
    pub(crate) status: u16,
}

/// What is counted. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) requests: Family<Answer, Counter>,
    pub(crate) prompt: Counter,
    pub(crate) cached: Counter,
    pub(crate) generated: Counter,
    pub(crate) steps: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) lost: Counter,
    pub(crate) running: Gauge,
    pub(crate) waiting: Gauge,
    pub(crate) room: Gauge,
    pub(crate) first: Histogram,
    pub(crate) busy: Counter<f64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            requests: Family::default(),
            prompt: Counter::default(),
            cached: Counter::default(),
            generated: Counter::default(),
            steps: Counter::default(),
            cancelled: Counter::default(),
            lost: Counter::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            room: Gauge::default(),
            first: Histogram::new(exponential_buckets(0.005, 2.0, 16)),
            busy: Counter::default(),
        }
    }

    /// All of them, as Prometheus reads them.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut all = Registry::with_prefix("ggml_llm");
        all.register("requests", "Answered requests", self.requests.clone());
        all.register("prompt_tokens", "Tokens of prompts", self.prompt.clone());
        all.register("cached_tokens", "Tokens of prompts that were computed before", self.cached.clone());
        all.register("generated_tokens", "New tokens", self.generated.clone());
        all.register("steps", "Steps, each of a token for every text", self.steps.clone());
        all.register("cancelled", "Texts whose clients went away", self.cancelled.clone());
        all.register("lost", "Failures after which the session was made anew", self.lost.clone());
        all.register("running", "Texts that are computed", self.running.clone());
        all.register("waiting", "Texts that wait", self.waiting.clone());
        all.register("room_tokens", "Free cells of the context", self.room.clone());
        all.register("first_token_seconds", "From a request to its first token", self.first.clone());
        all.register("busy_seconds", "Time spent in computations", self.busy.clone());
        let mut text = String::new();
        encode(&mut text, &all)?;
        Ok(text)
    }
}
