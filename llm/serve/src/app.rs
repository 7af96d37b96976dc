//! What requests have in common: the model's texts, limits, and the way to the engine.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use ggml_llm::Chooser;
use ggml_llm::text::{ChatTemplate, Message, Sampler, TextError, Tokenizer};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Semaphore, TryAcquireError};

use crate::failure::Failure;
use crate::job::{Event, Job, Work};
use crate::metrics::Metrics;
use crate::request::{Options, Prompt};

/// The served model, and the limits of requests.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) created: u64,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: ChatTemplate,
    pub(crate) jobs: Sender<Job>,
    /// Places in the queue.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) queue: u16,
    /// How many tokens fit, if that is limited.
    pub(crate) n_ctx: Option<usize>,
    pub(crate) n_vocab: usize,
    pub(crate) max_tokens: usize,
    pub(crate) time_limit: Duration,
    pub(crate) body_limit: usize,
    pub(crate) api_key: Option<String>,
    /// Whether prompts of completions have special tokens.
    pub(crate) special: bool,
    /// What compiles JSON schemas, or why there is none.
    #[cfg(feature = "constrain")]
    pub(crate) schemas: Result<Arc<crate::constrain::Schemas>, String>,
    pub(crate) metrics: Metrics,
}

/// What the engine tells of the texts of one request, by their index.
pub(crate) type Events = UnboundedReceiver<(usize, Event)>;

impl App {
    /// Refuses the name of another model.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), Failure> {
        match model.filter(|model| *model != self.name) {
            None => Ok(()),
            Some(other) => {
                let message = format!("there is no model {other:?}; this server has {:?}", self.name);
                Err(Failure::refused(StatusCode::NOT_FOUND, "model_not_found", message))
            }
        }
    }

    /// The tokens of a prompt.
    pub(crate) fn tokens(&self, prompt: Prompt) -> Result<Vec<i32>, Failure> {
        let tokens = match prompt {
            Prompt::Text(text) => self.tokenizer.encode(&text, true, self.special).map_err(request)?,
            Prompt::Tokens(tokens) => tokens,
        };
        if let Some(token) = tokens.iter().find(|&&token| !self.has(token)) {
            return Err(Failure::request(format!("there is no token {token}; the model has {}", self.n_vocab)));
        }
        if tokens.is_empty() {
            return Err(Failure::request("the prompt has no tokens"));
        }
        Ok(tokens)
    }

    fn has(&self, token: i32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.n_vocab)
    }

    /// The tokens of a chat, up to the beginning of an answer.
    pub(crate) fn chat_tokens(&self, messages: &[Message]) -> Result<Vec<i32>, Failure> {
        let tokens = self.template.encode(&self.tokenizer, messages).map_err(request)?;
        if tokens.is_empty() { Err(Failure::request("the messages have no tokens")) } else { Ok(tokens) }
    }

    /// Asks for answers to some texts, `n` to each.
    pub(crate) fn generate(
        &self,
        texts: Vec<Vec<i32>>,
        mut options: Options,
        usual: usize,
        chooser: impl Fn(Sampler) -> Chooser,
    ) -> Result<Events, Failure> {
        let n = usize::try_from(options.n.unwrap_or(1)).unwrap_or(usize::MAX);
        self.check_count(texts.len().saturating_mul(n))?;
        for token in options.biased() {
            if !token.parse().is_ok_and(|token| self.has(token)) {
                let message = format!("`logit_bias` has the token {token:?}; the model has {} tokens", self.n_vocab);
                return Err(Failure::field("logit_bias", message));
            }
        }
        let (max, stops) = (options.max()?.unwrap_or(usual), options.stops()?);
        let in_parts = options.is_streamed();
        let mut works = Vec::new();
        for tokens in texts {
            let room = self.n_ctx.map_or(usize::MAX, |n_ctx| n_ctx.saturating_sub(tokens.len()));
            if room == 0 {
                return Err(Failure::too_long(tokens.len(), self.n_ctx.unwrap_or(0)));
            }
            for _ in 0..n {
                let chooser = Box::new(chooser(options.sampler(works.len())?));
                let work = Work::Generate { max: max.min(room), chooser, stops: stops.clone(), in_parts };
                works.push((tokens.clone(), work));
            }
        }
        self.submit(works)
    }

    /// What chooses tokens by a sampler, within the format that the client asks for.
    #[cfg(feature = "constrain")]
    pub(crate) async fn chooser(&self, options: &Options) -> Result<impl Fn(Sampler) -> Chooser + use<>, Failure> {
        let constraint = match (options.grammar()?, &self.schemas) {
            (None, _) => None,
            (Some(grammar), Ok(schemas)) => Some(schemas.compile(grammar).await?),
            (Some(_), Err(why)) => return Err(Failure::field("response_format", why.clone())),
        };
        Ok(move |sampler| {
            let mut chooser = Chooser::new(sampler);
            chooser.constrain(constraint.clone());
            chooser
        })
    }

    /// What chooses tokens by a sampler.
    #[cfg(not(feature = "constrain"))]
    #[expect(clippy::unused_async, reason = "as with the feature")]
    pub(crate) async fn chooser(&self, _: &Options) -> Result<impl Fn(Sampler) -> Chooser + use<>, Failure> {
        Ok(Chooser::new)
    }

    /// Asks for embeddings of some texts.
    pub(crate) fn embed(&self, texts: Vec<Vec<i32>>) -> Result<Events, Failure> {
        self.check_count(texts.len())?;
        if let (Some(n_ctx), Some(text)) = (self.n_ctx, texts.iter().find(|t| Some(t.len()) > self.n_ctx)) {
            return Err(Failure::too_long(text.len(), n_ctx));
        }
        self.submit(texts.into_iter().map(|tokens| (tokens, Work::Embed)).collect())
    }

    fn check_count(&self, n: usize) -> Result<(), Failure> {
        let most = usize::from(self.queue);
        if (1..=most).contains(&n) {
            return Ok(());
        }
        Err(Failure::request(format!("the request is for {n} texts; expected 1 to {most}")))
    }

    fn submit(&self, works: Vec<(Vec<i32>, Work)>) -> Result<Events, Failure> {
        let count = u32::try_from(works.len()).unwrap_or(u32::MAX);
        let mut places = Arc::clone(&self.places).try_acquire_many_owned(count).map_err(|error| match error {
            TryAcquireError::NoPermits => Failure::busy(self.queue),
            TryAcquireError::Closed => Failure::gone(),
        })?;
        let (sender, events) = unbounded_channel();
        let arrived = Instant::now();
        let deadline = arrived + self.time_limit;
        for (index, (tokens, work)) in works.into_iter().enumerate() {
            let place = places.split(1).ok_or_else(Failure::gone)?;
            let job = Job { index, tokens, work, events: sender.clone(), arrived, deadline, place };
            self.jobs.send(job).map_err(|_| Failure::gone())?;
        }
        Ok(events)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` takes")]
fn request(error: TextError) -> Failure {
    Failure::request(error.to_string())
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
