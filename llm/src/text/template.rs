//! Chat templates: messages as the text that a model was trained on.

use std::fmt;
use std::time::SystemTime;

use ggml::gguf::Reader;
use jiff::Zoned;
use jiff::tz::TimeZone;

use super::error::{TextError, TextResult};
use super::jinja::{Clock, Fault, Input, Template};
use super::metadata::TokenizerMetadata;
use super::tokenizer::Tokenizer;

const TEMPLATE: &str = "tokenizer.chat_template";

/// The maximum length of a template in bytes. Those of published models have at most some tens of thousands.
const LONGEST: usize = 1 << 16;

/// The stack for templates, of which memory is used as it is needed: enough for all that may be inside each other.
const STACK: usize = 1 << 25;

/// A message of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who says it: `system`, `user` or `assistant`; templates may know others.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// The chat template of a model (`tokenizer.chat_template`).
///
/// Templates are written in Jinja for Python's `transformers`. They get `messages`, `add_generation_prompt`, `bos_token`
/// and `eos_token`, the functions `raise_exception` and `strftime_now`, and the methods of Python's strings, lists and
/// dictionaries.
///
/// Files come from anywhere, so each template ends: with a text, or with an error if it takes more than half a million steps or
/// 32 MiB (and more for many or long messages), nests too deeply, or is longer than 64 KiB.
///
/// ```
/// use ggml_llm::text::{ChatTemplate, Message};
/// # fn main() -> Result<(), ggml_llm::text::TextError> {
/// let template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}\
///     {% if add_generation_prompt %}<assistant>{% endif %}";
/// let template = ChatTemplate::new(template, "<s>", "</s>")?;
/// let text = template.render(&[Message::new("user", "Hello! ")], true)?;
/// assert_eq!(text, "<user>Hello!\n<assistant>");
/// # Ok(())
/// # }
/// ```
pub struct ChatTemplate {
    template: Template,
    bos: String,
    eos: String,
    clock: Box<Clock>,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("bos", &self.bos).field("eos", &self.eos).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// The template of a file, and the names of the tokens that it may ask for.
    ///
    /// # Errors
    /// [`TextError::Missing`] if the file has no template, [`TextError::Template`] with its line if it does not parse.
    pub fn from_gguf<S>(reader: &Reader<S>, tokenizer: &Tokenizer) -> TextResult<Self> {
        let missing =
            TextError::Missing { key: TEMPLATE, expected: "a string, a chat template: this may be no chat model" };
        let template = TokenizerMetadata::new(reader).text(TEMPLATE)?.ok_or(missing)?;
        Self::with_tokenizer(template, tokenizer)
    }

    /// A template for a model with this tokenizer.
    ///
    /// # Errors
    /// [`TextError::Template`] with its line if it does not parse.
    pub fn with_tokenizer(template: &str, tokenizer: &Tokenizer) -> TextResult<Self> {
        let name = |id: Option<i32>| {
            let name = id.map(|id| tokenizer.piece(id, true)).transpose()?.unwrap_or_default();
            Ok::<_, TextError>(String::from_utf8_lossy(name).into_owned())
        };
        Self::new(template, &name(tokenizer.bos())?, &name(tokenizer.eos())?)
    }

    /// A template, and the texts of the tokens that begin and end a text.
    ///
    /// # Errors
    /// [`TextError::Template`] with its line if it does not parse.
    pub fn new(template: &str, bos_token: &str, eos_token: &str) -> TextResult<Self> {
        if template.len() > LONGEST {
            let message = format!("it has {} bytes, but at most {LONGEST} are supported", template.len());
            return Err(TextError::Template { line: None, message });
        }
        let template = apart(|| Template::parse(template))?;
        let (bos, eos, clock) = (bos_token.to_owned(), eos_token.to_owned(), clock(Zoned::now));
        Ok(Self { template, bos, eos, clock })
    }

    /// Fixes the time that `strftime_now` tells, in UTC. Without it, the time is that of the system.
    #[must_use]
    pub fn with_time(self, time: SystemTime) -> Self {
        let time = jiff::Timestamp::try_from(time).unwrap_or_default().to_zoned(TimeZone::UTC);
        Self { clock: clock(move || time.clone()), ..self }
    }

    /// The text of a chat. `add_generation_prompt` ends it with the beginning of an answer.
    ///
    /// # Errors
    /// [`TextError::Template`] if the template refuses the messages, uses what there is not, or takes too much time or memory.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> TextResult<String> {
        let texts = [("bos_token", &*self.bos), ("eos_token", &*self.eos)];
        let input = Input { messages, texts, add_generation_prompt, clock: &*self.clock };
        apart(|| self.template.render(&input))
    }

    /// The tokens of a chat, up to the beginning of an answer. Names of special tokens are these, also in messages.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`] and [`Tokenizer::encode`].
    pub fn encode(&self, tokenizer: &Tokenizer, messages: &[Message]) -> TextResult<Vec<i32>> {
        let mut tokens = tokenizer.encode(&self.render(messages, true)?, false, true)?;
        // Most templates write the token that begins a text.
        if let Some(bos) = tokenizer.added_bos().filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }
}

/// `strftime_now`.
fn clock(now: impl Fn() -> Zoned + Send + Sync + 'static) -> Box<Clock> {
    Box::new(move |form| jiff::fmt::strtime::format(form, &now()).map_err(|error| error.to_string()))
}

/// Runs the engine on a thread of its own, whose stack is large enough.
fn apart<T: Send>(run: impl FnOnce() -> TextResult<T, Fault> + Send) -> TextResult<T> {
    let other = |message: String| TextError::Template { line: None, message };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".to_owned()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, run);
        let thread = thread.map_err(|error| other(format!("there is no thread for it: {error}")))?;
        let result =
            thread.join().map_err(|_| other("it makes the template engine panic: please report this".to_owned()))?;
        result.map_err(|Fault { line, message }| TextError::Template { line, message })
    })
}
