//! What clients get: whole answers, and streams of their parts.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::{Value, json};

use crate::app::Events;
use crate::failure::Failure;
use crate::job::{Event, Finish, Usage};

/// What an answer belongs to.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) chat: bool,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl Head {
    /// An object with these choices.
    fn object(&self, part: bool, choices: &Value) -> Value {
        let Self { chat, id, created, model } = self;
        let object = match (chat, part) {
            (true, true) => "chat.completion.chunk",
            (true, false) => "chat.completion",
            (false, _) => "text_completion",
        };
        json!({ "id": id, "object": object, "created": created, "model": model, "choices": choices })
    }

    fn choice(&self, index: usize, text: &str, finish: Finish) -> Value {
        let mut choice = json!({ "index": index, "finish_reason": finish, "logprobs": null });
        if self.chat {
            choice["message"] = json!({ "role": "assistant", "content": text, "refusal": null });
        } else {
            choice["text"] = text.into();
        }
        choice
    }

    /// A part of an answer: a text, or why it ends.
    fn part(&self, index: usize, text: &str, finish: Option<Finish>, first: bool) -> Value {
        let mut choice = json!({ "index": index, "finish_reason": finish, "logprobs": null });
        if self.chat {
            choice["delta"] = if finish.is_some() { json!({}) } else { json!({ "content": text }) };
            if first {
                choice["delta"]["role"] = "assistant".into();
            }
        } else {
            choice["text"] = text.into();
        }
        self.object(true, &json!([choice]))
    }
}

fn usage(of: Usage) -> Value {
    json!({
        "prompt_tokens": of.prompt,
        "completion_tokens": of.new,
        "total_tokens": of.prompt + of.new,
        "prompt_tokens_details": { "cached_tokens": of.cached },
    })
}

/// `n` answers, once all are there.
pub(crate) async fn whole(head: &Head, n: usize, mut events: Events) -> Result<Value, Failure> {
    let mut texts = vec![(String::new(), None); n];
    let mut total = Usage::default();
    while let Some((index, event)) = events.recv().await {
        let Some((all, end)) = texts.get_mut(index) else { continue };
        match event {
            Event::Text(text) => all.push_str(&text),
            Event::Done(finish, usage) => {
                *end = Some(finish);
                total.add(usage);
            }
            Event::Failed(failure) => return Err(failure),
            Event::Embedding(..) => {}
        }
    }
    let choice = |(index, (text, finish)): (usize, &(String, Option<Finish>))| {
        Ok(head.choice(index, text, finish.ok_or_else(Failure::gone)?))
    };
    let choices = texts.iter().enumerate().map(choice).collect::<Result<Vec<_>, Failure>>()?;
    let mut object = head.object(false, &choices.into());
    object["usage"] = usage(total);
    Ok(object)
}

/// `n` embeddings, once all are there.
pub(crate) async fn embeddings(model: &str, n: usize, base64: bool, mut events: Events) -> Result<Value, Failure> {
    let mut list = vec![Value::Null; n];
    let mut total = Usage::default();
    while let Some((index, event)) = events.recv().await {
        match event {
            Event::Embedding(embedding, usage) => {
                total.add(usage);
                let embedding = if base64 { base64_of(&embedding).into() } else { json!(embedding) };
                if let Some(place) = list.get_mut(index) {
                    *place = json!({ "object": "embedding", "index": index, "embedding": embedding });
                }
            }
            Event::Failed(failure) => return Err(failure),
            Event::Text(_) | Event::Done(..) => {}
        }
    }
    if list.iter().any(Value::is_null) {
        return Err(Failure::gone());
    }
    let tokens = json!({ "prompt_tokens": total.prompt, "total_tokens": total.prompt });
    Ok(json!({ "object": "list", "data": list, "model": model, "usage": tokens }))
}

/// Little-endian floats in base64, which the OpenAI package asks for.
fn base64_of(floats: &[f32]) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    BASE64_STANDARD.encode(floats.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
}

/// `n` answers as they come. A failure before the first text has its own status.
pub(crate) async fn stream(head: Head, n: usize, with_usage: bool, mut events: Events) -> Result<Response, Failure> {
    let first = events.recv().await.ok_or_else(Failure::gone)?;
    if let (_, Event::Failed(failure)) = first {
        return Err(failure);
    }
    let state = Streaming {
        head,
        events,
        next: Some(first),
        begun: vec![false; n],
        left: n,
        total: Usage::default(),
        with_usage,
    };
    let parts = stream::unfold(Some(state), |state| async {
        let (data, state) = state?.next().await;
        Some((Ok::<_, Infallible>(sse::Event::default().data(data)), state))
    });
    Ok(Sse::new(parts).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response())
}

/// A stream of answers, under way.
struct Streaming {
    head: Head,
    events: Events,
    /// What came already.
    next: Option<(usize, Event)>,
    /// Which answers have a part.
    begun: Vec<bool>,
    /// How many answers have not ended.
    left: usize,
    total: Usage,
    with_usage: bool,
}

impl Streaming {
    /// The next part, and what streams the rest, if any.
    async fn next(mut self) -> (String, Option<Self>) {
        if self.left == 0 && self.with_usage {
            self.with_usage = false;
            let mut object = self.head.object(true, &json!([]));
            object["usage"] = usage(self.total);
            return (object.to_string(), Some(self));
        }
        if self.left == 0 {
            return ("[DONE]".into(), None);
        }
        let event = match self.next.take() {
            Some(event) => Some(event),
            None => self.events.recv().await,
        };
        let (index, event) = event.unwrap_or_else(|| (0, Event::Failed(Failure::gone())));
        let first = self.begun.get_mut(index).is_some_and(|begun| !std::mem::replace(begun, true));
        let part = match event {
            Event::Text(text) => self.head.part(index, &text, None, first),
            Event::Done(finish, usage) => {
                self.left -= 1;
                self.total.add(usage);
                self.head.part(index, "", Some(finish), first)
            }
            Event::Failed(failure) => return (failure.json().to_string(), None),
            Event::Embedding(..) => Value::Null,
        };
        (part.to_string(), Some(self))
    }
}
