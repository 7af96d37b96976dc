//! What clients send: the fields of OpenAI's requests that mean something here. Others that would change the answer are refused.

use std::collections::BTreeMap;

#[cfg(feature = "constrain")]
use ggml_llm::constrain::Grammar;
use ggml_llm::text::{Message, Sampler, SamplerOptions, StopStrings};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::failure::Failure;

/// One value, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    pub(crate) fn list(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more,
        }
    }
}

/// A prompt, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, a list of strings, a list of tokens, or a list of such lists")]
pub(crate) enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<i32>),
    TokenLists(Vec<Vec<i32>>),
}

/// One prompt.
#[derive(Debug)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<i32>),
}

impl Prompts {
    pub(crate) fn list(self) -> Vec<Prompt> {
        match self {
            Self::Text(text) => vec![Prompt::Text(text)],
            Self::Texts(texts) => texts.into_iter().map(Prompt::Text).collect(),
            Self::Tokens(tokens) => vec![Prompt::Tokens(tokens)],
            Self::TokenLists(lists) => lists.into_iter().map(Prompt::Tokens).collect(),
        }
    }
}

/// How an answer is chosen and sent: for chats and completions.
#[derive(Debug, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of OpenAI")]
pub(crate) struct Options {
    pub(crate) model: Option<String>,
    pub(crate) n: Option<u32>,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<i64>,
    stop: Option<OneOrMore<String>>,
    response_format: Option<ResponseFormat>,
    // What isn't there.
    tools: Option<Vec<IgnoredAny>>,
    functions: Option<Vec<IgnoredAny>>,
    audio: Option<IgnoredAny>,
    modalities: Option<Vec<String>>,
    logprobs: Option<serde_json::Value>,
    top_logprobs: Option<u32>,
    best_of: Option<u32>,
    echo: Option<bool>,
    suffix: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StreamOptions {
    pub(crate) include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    #[cfg(feature = "constrain")]
    json_schema: Option<JsonSchema>,
}

/// `name` and `strict` mean nothing here: the schema always holds.
#[cfg(feature = "constrain")]
#[derive(Debug, Deserialize)]
struct JsonSchema {
    schema: Option<serde_json::Value>,
}

impl Options {
    pub(crate) fn is_streamed(&self) -> bool {
        self.stream == Some(true)
    }

    /// Refuses what would have to change the answer, and isn't there.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let off = |value: &serde_json::Value| matches!(value.as_bool(), Some(false)) || value.is_null();
        let some = |list: &Option<Vec<IgnoredAny>>| list.as_ref().is_some_and(|list| !list.is_empty());
        let text = |list: &Vec<String>| list.iter().all(|m| m == "text");
        for (param, there) in [
            ("tools", some(&self.tools)),
            ("functions", some(&self.functions)),
            ("audio", self.audio.is_some()),
            ("modalities", self.modalities.as_ref().is_some_and(|m| !text(m))),
            ("logprobs", self.logprobs.as_ref().is_some_and(|value| !off(value))),
            ("top_logprobs", self.top_logprobs.is_some_and(|n| n > 0)),
            ("best_of", self.best_of.is_some_and(|n| n > self.n.unwrap_or(1))),
            ("echo", self.echo == Some(true)),
            ("suffix", self.suffix.as_ref().is_some_and(|text| !text.is_empty())),
            (
                "response_format",
                !cfg!(feature = "constrain")
                    && self.response_format.as_ref().is_some_and(|format| format.kind != "text"),
            ),
        ] {
            if there {
                return Err(Failure::field(param, format!("this server has no `{param}`")));
            }
        }
        if self.n == Some(0) {
            return Err(Failure::field("n", "`n` is 0; expected 1 or more"));
        }
        Ok(())
    }

    /// The most new tokens.
    pub(crate) fn max(&self) -> Result<Option<usize>, Failure> {
        match self.max_completion_tokens.or(self.max_tokens) {
            Some(0) => Err(Failure::field("max_tokens", "`max_tokens` is 0; expected 1 or more")),
            max => Ok(max.map(|n| usize::try_from(n).unwrap_or(usize::MAX))),
        }
    }

    /// OpenAI's values where the client gives none; without a seed, each answer has its own.
    pub(crate) fn sampler(&self, index: usize) -> Result<Sampler, Failure> {
        let other = |e: ggml_llm::text::TextError| Failure::request(e.to_string());
        let seed = self.seed.map_or_else(|| fastrand::u64(..), |seed| seed.cast_unsigned().wrapping_add(index as u64));
        let options = SamplerOptions::new()
            .with_temperature(self.temperature.unwrap_or(1.0))
            .with_top_p(self.top_p.unwrap_or(1.0))
            .with_top_k(self.top_k.map_or(0, |k| usize::try_from(k).unwrap_or(usize::MAX)))
            .with_min_p(self.min_p.unwrap_or(0.0))
            .with_repeat_penalty(self.repeat_penalty.unwrap_or(1.0))
            .with_frequency_penalty(self.frequency_penalty.unwrap_or(0.0))
            .with_presence_penalty(self.presence_penalty.unwrap_or(0.0))
            .with_seed(seed);
        let token = |(id, &bias): (&String, &f32)| match id.parse() {
            Ok(id) => Ok((id, bias)),
            Err(_) => {
                Err(Failure::field("logit_bias", format!("`logit_bias` has the token {id:?}; expected a number")))
            }
        };
        let bias = self.logit_bias.iter().flatten().map(token).collect::<Result<Vec<(i32, f32)>, _>>()?;
        Sampler::new(options).and_then(|sampler| sampler.with_logit_bias(bias)).map_err(other)
    }

    /// What the format of the answer allows, if it isn't any text.
    #[cfg(feature = "constrain")]
    pub(crate) fn grammar(&self) -> Result<Option<Grammar>, Failure> {
        let Some(ResponseFormat { kind, json_schema }) = &self.response_format else { return Ok(None) };
        let wrong = |why: String| Err(Failure::field("response_format", why));
        match &**kind {
            "text" => Ok(None),
            "json_object" => Ok(Some(Grammar::JsonObject)),
            "json_schema" => match json_schema.as_ref().and_then(|named| named.schema.as_ref()) {
                Some(schema) => Ok(Some(Grammar::JsonSchema(schema.to_string()))),
                None => wrong("`response_format` has no `json_schema.schema`".into()),
            },
            other => {
                wrong(format!("`response_format` is {other:?}; expected \"text\", \"json_object\" or \"json_schema\""))
            }
        }
    }

    /// The tokens with a bias.
    pub(crate) fn biased(&self) -> impl Iterator<Item = &String> {
        self.logit_bias.iter().flat_map(BTreeMap::keys)
    }

    pub(crate) fn stops(&mut self) -> Result<StopStrings, Failure> {
        let stops = self.stop.take().map(OneOrMore::list).unwrap_or_default();
        if stops.len() > MAX_STOPS {
            return Err(Failure::field(
                "stop",
                format!("there are {} stop strings, but {MAX_STOPS} may be", stops.len()),
            ));
        }
        Ok(StopStrings::new(stops))
    }
}

const MAX_STOPS: usize = 16;

/// `/v1/completions`.
#[derive(Debug, Deserialize)]
pub(crate) struct CompletionRequest {
    pub(crate) prompt: Prompts,
    #[serde(flatten)]
    pub(crate) options: Options,
}

/// `/v1/chat/completions`.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatRequest {
    messages: Vec<ChatMessage>,
    #[serde(flatten)]
    pub(crate) options: Options,
}

/// `/v1/embeddings`.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingRequest {
    pub(crate) input: Prompts,
    pub(crate) model: Option<String>,
    pub(crate) encoding_format: Option<String>,
    pub(crate) dimensions: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
    tool_calls: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, or a list of parts such as {\"type\": \"text\", \"text\": …}")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl ChatRequest {
    pub(crate) fn messages(&self) -> Result<Vec<Message>, Failure> {
        if self.messages.is_empty() {
            return Err(Failure::field("messages", "`messages` is empty"));
        }
        self.messages.iter().map(ChatMessage::message).collect()
    }
}

impl ChatMessage {
    fn message(&self) -> Result<Message, Failure> {
        let wrong = |why: String| Err(Failure::field("messages", why));
        let role = match &*self.role {
            "developer" => "system", // OpenAI's later name
            role @ ("system" | "user" | "assistant") => role,
            other => {
                return wrong(format!("a message's role is {other:?}; expected system, developer, user or assistant"));
            }
        };
        if self.tool_calls.is_some() {
            return wrong("this server has no `tool_calls`".into());
        }
        let text = match &self.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let mut all = String::new();
                for part in parts {
                    match (&*part.kind, &part.text) {
                        ("text", Some(text)) => all += text,
                        (kind, _) => {
                            return wrong(format!("a message has a part of type {kind:?}; only texts are supported"));
                        }
                    }
                }
                all
            }
            None if role == "assistant" => String::new(),
            None => return wrong(format!("a message of the {role} has no `content`")),
        };
        Ok(Message::new(role, text))
    }
}
