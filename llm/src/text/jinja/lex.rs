//! The tokens of a template.

use super::{Fault, JinjaResult};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Lexeme {
    /// Text outside of tags.
    Data(String),
    /// `{{`, `}}`, `{%` and `%}`.
    Print,
    PrintEnd,
    Block,
    BlockEnd,
    Name(String),
    Text(String),
    Int(i64),
    Float(f64),
    Op(&'static str),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Lexeme,
    pub(super) line: usize,
}

/// Operators, the longest first.
const OPS: &[&str] = &[
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ".",
    ",", ":", "|", ";",
];

/// White space as Python has it.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
    tokens: Vec<Token>,
    /// Whether the tag before ended with the end of a line.
    line_starts: bool,
}

/// The tokens of a template, with blocks trimmed as `transformers` sets Jinja up.
pub(super) fn lex(template: &str) -> JinjaResult<Vec<Token>> {
    let template = template.replace("\r\n", "\n").replace('\r', "\n");
    let template = template.strip_suffix('\n').unwrap_or(&template);
    let mut lexer = Lexer { rest: template, line: 1, tokens: Vec::new(), line_starts: true };
    lexer.template().map_err(|fault| fault.at(lexer.line))?;
    lexer.push(Lexeme::End);
    Ok(lexer.tokens)
}

impl<'t> Lexer<'t> {
    fn push(&mut self, kind: Lexeme) {
        self.tokens.push(Token { kind, line: self.line });
    }

    /// Takes so many bytes.
    fn take(&mut self, n: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(n).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line += taken.matches('\n').count();
        taken
    }

    fn take_spaces(&mut self) {
        let spaces = self.rest.len() - self.rest.trim_start_matches(is_space).len();
        self.take(spaces);
    }

    fn take_if(&mut self, start: &str) -> bool {
        let found = self.rest.starts_with(start);
        if found {
            self.take(start.len());
        }
        found
    }

    fn template(&mut self) -> JinjaResult<()> {
        loop {
            let begins = ["{{", "{%", "{#"].iter().filter_map(|tag| self.rest.find(tag)).min();
            let Some(at) = begins else {
                let data = self.take(self.rest.len());
                self.data(data);
                return Ok(());
            };
            let tag = self.rest.get(at..at + 2).unwrap_or_default();
            let sign = self.rest.get(at + 2..at + 3).unwrap_or_default();
            let data = self.take(at);
            self.data_before(data, sign, tag != "{{");
            self.take(2 + usize::from(sign == "-" || sign == "+"));
            match tag {
                "{{" => self.tag(Lexeme::Print, &Lexeme::PrintEnd, "}}")?,
                "{%" if self.raw()? => {}
                "{%" => self.tag(Lexeme::Block, &Lexeme::BlockEnd, "%}")?,
                _ => {
                    let end = self.rest.find("#}").ok_or_else(|| Fault::new("a comment has no end"))?;
                    let comment = self.take(end);
                    let sign = comment.chars().next_back();
                    self.take(2);
                    self.after_block(sign);
                }
            }
        }
    }

    fn data(&mut self, data: &str) {
        if !data.is_empty() {
            self.push(Lexeme::Data(data.to_owned()));
        }
    }

    /// The data before a tag, trimmed as its sign says. Before a block, white space that begins a line goes.
    fn data_before(&mut self, data: &str, sign: &str, is_block: bool) {
        let mut kept = data;
        if sign == "-" {
            kept = data.trim_end_matches(is_space);
        } else if sign != "+" && is_block {
            let start = data.rfind('\n').map_or(0, |at| at + 1);
            let (before, last) = data.split_at_checked(start).unwrap_or((data, ""));
            if (start > 0 || self.line_starts) && last.chars().all(is_space) {
                kept = before;
            }
        }
        self.data(kept);
    }

    /// What follows a block's end: a sign before it, or the end of the line.
    fn after_block(&mut self, sign: Option<char>) {
        let before = self.rest.len();
        match sign {
            Some('-') => self.take_spaces(),
            Some('+') => {}
            _ => drop(self.take_if("\n")),
        }
        // After `-`, no white space is left that would begin a line.
        self.line_starts = self.rest.len() < before && sign != Some('-');
    }

    /// Text between `raw` and `endraw`, if that is the block that begins here.
    fn raw(&mut self) -> JinjaResult<bool> {
        let inner = self.rest.trim_start_matches(is_space);
        let Some(after) = inner.strip_prefix("raw") else { return Ok(false) };
        let after = after.trim_start_matches(is_space);
        let (strip, after) = match (after.strip_prefix("-%}"), after.strip_prefix("%}")) {
            (Some(after), _) => (true, after),
            (None, Some(after)) => (false, after),
            _ => return Ok(false),
        };
        self.take(self.rest.len() - after.len());
        if strip {
            self.take_spaces();
        }
        self.line_starts = false;
        let mut from = 0;
        while let Some(at) = self.rest.get(from..).and_then(|rest| rest.find("{%")).map(|at| from + at) {
            let tag = self.rest.get(at + 2..).unwrap_or_default();
            let sign = tag.get(..1).filter(|s| *s == "-" || *s == "+").unwrap_or_default();
            let name = tag.strip_prefix(sign).unwrap_or(tag).trim_start_matches(is_space);
            let end = name.strip_prefix("endraw").map(|rest| rest.trim_start_matches(is_space));
            let after = end.and_then(|end| {
                let ends = ["-%}", "+%}", "%}"];
                ends.iter().find_map(|e| Some((e.chars().next(), end.strip_prefix(e)?)))
            });
            if let Some((end_sign, after)) = after {
                let data = self.take(at);
                self.data_before(data, sign, true);
                self.take(self.rest.len() - after.len());
                self.after_block(end_sign);
                return Ok(true);
            }
            from = at + 2;
        }
        Err(Fault::new("`raw` has no `endraw`"))
    }

    /// The tokens of a tag up to its end.
    fn tag(&mut self, begin: Lexeme, end: &Lexeme, mark: &str) -> JinjaResult<()> {
        self.push(begin);
        let mut open = Vec::new();
        loop {
            self.take_spaces();
            if open.is_empty() {
                let sign = self.rest.chars().next().filter(|c| *c == '-' || *c == '+');
                let at = self.rest.get(usize::from(sign.is_some())..).unwrap_or_default();
                if at.starts_with(mark) {
                    self.push(end.clone());
                    self.take(mark.len() + usize::from(sign.is_some()));
                    match (end, sign) {
                        (Lexeme::BlockEnd, sign) => self.after_block(sign),
                        (_, Some('-')) => {
                            self.take_spaces();
                            self.line_starts = false;
                        }
                        _ => self.line_starts = false,
                    }
                    return Ok(());
                }
            }
            let kind = self.token()?;
            if let Lexeme::Op(op) = kind {
                match op {
                    "(" => open.push(")"),
                    "[" => open.push("]"),
                    "{" => open.push("}"),
                    ")" | "]" | "}" if open.pop() != Some(op) => return Err(Fault::new(format!("unexpected `{op}`"))),
                    _ => {}
                }
            }
            self.push(kind);
        }
    }

    fn token(&mut self) -> JinjaResult<Lexeme> {
        let Some(first) = self.rest.chars().next() else { return Err(Fault::new("a tag has no end")) };
        if first == '_' || first.is_alphabetic() {
            let end = self.rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(self.rest.len());
            return Ok(Lexeme::Name(self.take(end).to_owned()));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '\'' || first == '"' {
            return self.text(first);
        }
        let op = OPS.iter().find(|op| self.rest.starts_with(**op));
        let op = op.ok_or_else(|| Fault::new(format!("unexpected {first:?}")))?;
        self.take(op.len());
        Ok(Lexeme::Op(op))
    }

    fn number(&mut self) -> JinjaResult<Lexeme> {
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').len();
        for (prefix, radix) in [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)] {
            if let Some(rest) = self.rest.strip_prefix(prefix) {
                let n = rest.find(|c: char| !c.is_digit(radix) && c != '_').unwrap_or(rest.len());
                let text = self.take(2 + n).get(2..).unwrap_or_default().replace('_', "");
                return i64::from_str_radix(&text, radix)
                    .map(Lexeme::Int)
                    .map_err(|_| Fault::new("a number is too large"));
            }
        }
        let mut n = digits(self.rest);
        let mut is_float = false;
        let after = |n: usize| self.rest.get(n..).unwrap_or_default();
        if let Some(fraction) = after(n).strip_prefix('.').map(digits).filter(|n| *n > 0) {
            (n, is_float) = (n + 1 + fraction, true);
        }
        if let Some(exponent) = after(n).strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let length = exponent.get(sign..).map_or(0, digits);
            if length > 0 {
                (n, is_float) = (n + 1 + sign + length, true);
            }
        }
        let text = self.take(n).replace('_', "");
        let wrong = || Fault::new("a number is too large");
        if is_float {
            return text.parse().map(Lexeme::Float).map_err(|_| wrong());
        }
        text.parse().map(Lexeme::Int).map_err(|_| wrong())
    }

    fn text(&mut self, quote: char) -> JinjaResult<Lexeme> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        let end = loop {
            let next = characters.next().ok_or_else(|| Fault::new("a text has no end"))?;
            match next {
                (at, c) if c == quote => break at + 1,
                (_, '\\') => {
                    let (_, c) = characters.next().ok_or_else(|| Fault::new("a text has no end"))?;
                    let digits = match c {
                        'x' => 2,
                        'u' => 4,
                        'U' => 8,
                        _ => 0,
                    };
                    if digits > 0 {
                        let code: String = characters.by_ref().take(digits).map(|(_, c)| c).collect();
                        let code = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits);
                        text.push(code.and_then(char::from_u32).ok_or_else(|| Fault::new("a wrong escape in a text"))?);
                        continue;
                    }
                    match escape(c) {
                        Some(c) => text.push(c),
                        None if c == '\n' => {}
                        None => text.extend(['\\', c]),
                    }
                }
                (_, c) => text.push(c),
            }
        };
        self.take(end);
        Ok(Lexeme::Text(text))
    }
}

/// The character that an escape of one character stands for.
fn escape(c: char) -> Option<char> {
    Some(match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\x08',
        'f' => '\x0c',
        'v' => '\x0b',
        'a' => '\x07',
        '0' => '\0',
        '\\' | '\'' | '"' => c,
        _ => return None,
    })
}
