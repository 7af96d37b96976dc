//! Chat templates: messages as the text that a model was trained on.

use std::io;
use std::time::SystemTime;

use ggml::gguf::Reader;
use jiff::Zoned;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, ErrorKind, Value, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::error::{Error, Result};
use super::metadata::Metadata;
use super::tokenizer::Tokenizer;

const TEMPLATE: &str = "tokenizer.chat_template";

/// The template's name in the environment.
const NAME: &str = "chat";

/// How many steps of the template's program may be run: a template that never ends is an error.
const STEPS: u64 = 1_000_000;

/// The maximum length of a template in bytes. Those of published models have at most some tens of thousands.
const LONGEST: usize = 1 << 16;

/// The stack for templates, of which memory is used as it is needed. Jinja's engine goes deeper for each operator of an
/// expression and for each level of a nested list, so that no template of the maximum length overflows it.
const STACK: usize = 1 << 28;

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
/// A template that never ends, nests too deeply or is longer than 64 KiB is an error. One that doubles a text again and
/// again is not stopped before the memory is used up.
///
/// ```
/// use ggml_llm::text::{ChatTemplate, Message};
/// # fn main() -> Result<(), ggml_llm::text::Error> {
/// let template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}\
///     {% if add_generation_prompt %}<assistant>{% endif %}";
/// let template = ChatTemplate::new(template, "<s>", "</s>")?;
/// let text = template.render(&[Message::new("user", "Hello! ")], true)?;
/// assert_eq!(text, "<user>Hello!\n<assistant>");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// The template of a file, and the names of the tokens that it may ask for.
    ///
    /// # Errors
    /// [`Error::Missing`] if the file has no template, [`Error::Template`] with its line if it does not parse.
    pub fn from_gguf<S>(reader: &Reader<S>, tokenizer: &Tokenizer) -> Result<Self> {
        let missing =
            Error::Missing { key: TEMPLATE, expected: "a string, a chat template: this may be no chat model" };
        let template = Metadata::new(reader).text(TEMPLATE)?.ok_or(missing)?;
        let name = |id: Option<i32>| {
            let name = id.map(|id| tokenizer.piece(id, true)).transpose()?.unwrap_or_default();
            Ok::<_, Error>(String::from_utf8_lossy(name).into_owned())
        };
        Self::new(template, &name(tokenizer.bos())?, &name(tokenizer.eos())?)
    }

    /// A template, and the texts of the tokens that begin and end a text.
    ///
    /// # Errors
    /// [`Error::Template`] with its line if it does not parse.
    pub fn new(template: &str, bos_token: &str, eos_token: &str) -> Result<Self> {
        let mut environment = Environment::new();
        // As transformers sets up Jinja.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failed(&error))?);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.set_fuel(Some(STEPS));
        environment.add_filter("tojson", |value: &Value, options: Kwargs| to_json(value, &options));
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        if template.len() > LONGEST {
            let message = format!("it has {} bytes, but at most {LONGEST} are supported", template.len());
            return Err(Error::Template { line: None, message });
        }
        on_large_stack(|| environment.add_template_owned(NAME, template.to_owned()))?;
        let template = Self { environment, bos: bos_token.to_owned(), eos: eos_token.to_owned() };
        Ok(template.with_clock(Zoned::now))
    }

    /// Fixes the time that `strftime_now` tells, in UTC. Without it, the time is that of the system.
    #[must_use]
    pub fn with_time(self, time: SystemTime) -> Self {
        let time = jiff::Timestamp::try_from(time).unwrap_or_default().to_zoned(TimeZone::UTC);
        self.with_clock(move || time.clone())
    }

    fn with_clock(mut self, now: impl Fn() -> Zoned + Send + Sync + 'static) -> Self {
        self.environment.add_function("strftime_now", move |form: String| {
            let text = jiff::fmt::strtime::format(&form, &now());
            text.map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
        });
        self
    }

    /// The text of a chat. `add_generation_prompt` ends it with the beginning of an answer.
    ///
    /// # Errors
    /// [`Error::Template`] if the template refuses the messages, uses what there is not, or takes too long.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        on_large_stack(|| {
            self.environment.get_template(NAME)?.render(context! {
                messages => messages.iter().map(value).collect::<Value>(),
                add_generation_prompt,
                bos_token => self.bos.as_str(),
                eos_token => self.eos.as_str(),
                tools => (),
                documents => (),
            })
        })
    }
}

/// Runs the engine on a thread with a large stack. A panic of the engine is an error, too.
fn on_large_stack<T: Send>(run: impl FnOnce() -> Result<T, minijinja::Error> + Send) -> Result<T> {
    let other = |message: String| Error::Template { line: None, message };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".to_owned()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, || run().map_err(|error| failed(&error)));
        let thread = thread.map_err(|error| other(format!("there is no thread for it: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(other("the template engine fails on it: this is a bug of minijinja".to_owned())))
    })
}

fn value(message: &Message) -> Value {
    Value::from_pairs([("role", message.role.as_str()), ("content", message.content.as_str())])
}

fn failed(error: &minijinja::Error) -> Error {
    let kind = error.kind();
    let message = match error.detail() {
        Some(detail) if kind == ErrorKind::InvalidOperation => detail.to_owned(),
        Some(detail) => format!("{kind}: {detail}"),
        None if kind == ErrorKind::OutOfFuel => format!("it takes more than {STEPS} steps"),
        None => kind.to_string(),
    };
    Error::Template { line: error.line(), message }
}

/// The filter `tojson`: spaces and characters as Python's `json` writes them.
fn to_json(value: &Value, options: &Kwargs) -> Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let mut json = Vec::new();
    let written = match indent.map(|n| " ".repeat(n.min(64))) {
        Some(indent) => {
            value.serialize(&mut Serializer::with_formatter(&mut json, PrettyFormatter::with_indent(indent.as_bytes())))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut json, OneLine)),
    };
    written.map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}")))?;
    Ok(String::from_utf8_lossy(&json).into_owned().into())
}

/// JSON in one line, with spaces after commas and colons.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
