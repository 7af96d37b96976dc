//! The part of Jinja that chat templates are written in, for templates that nobody trusts: steps, memory, and what is inside
//! each other are counted (`limits`), so that each template ends, with a text or an error.

mod ast;
mod call;
mod conditions;
mod eval;
mod expression;
mod filters;
mod format;
mod lex;
mod limits;
mod lists;
mod methods;
mod operators;
mod parse;
mod show;

mod value;

use std::fmt;

/// Why a template fails.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

type JinjaResult<T> = Result<T, Fault>;

impl Fault {
    fn new(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into() }
    }

    /// Names the line, unless a part of it was closer.
    fn at(self, line: usize) -> Self {
        Self { line: self.line.or(Some(line)), ..self }
    }
}

/// A parsed template.
pub(super) struct Template(ast::Ast);

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").finish_non_exhaustive()
    }
}

/// What `strftime_now` returns for a format.
pub(super) type Clock = dyn Fn(&str) -> Result<String, String> + Send + Sync;

/// What a template gets.
pub(super) struct Input<'i> {
    /// Role and content of each message.
    pub(super) messages: &'i [super::template::Message],
    pub(super) texts: [(&'static str, &'i str); 2],
    pub(super) add_generation_prompt: bool,
    pub(super) clock: &'i Clock,
}

impl Template {
    pub(super) fn parse(template: &str) -> JinjaResult<Self> {
        parse::parse(template).map(Self)
    }

    pub(super) fn render(&self, input: &Input<'_>) -> JinjaResult<String> {
        eval::render(&self.0, input)
    }
}
