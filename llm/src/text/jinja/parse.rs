//! Parsing of blocks.

use super::ast::{Ast, CallArgs, Expr, Filters, For, Macro, Node, Stmt, Target};
use super::lex::{Lexeme, Token, lex};
use super::{Fault, JinjaResult};

/// Blocks and expressions inside each other.
const NESTED: u32 = 120;

pub(super) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    loops: u32,
    macros: Vec<Macro>,
}

/// Parses a template.
pub(super) fn parse(template: &str) -> JinjaResult<Ast> {
    let mut parser = Parser { tokens: lex(template)?, at: 0, depth: 0, loops: 0, macros: Vec::new() };
    let parsed = parser.block(&[]);
    let line = parser.line();
    let (body, _) = parsed.map_err(|fault| fault.at(line))?;
    Ok(Ast { body, macros: parser.macros })
}

impl Parser {
    pub(super) fn line(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |token| token.line)
    }

    pub(super) fn peek(&self) -> &Lexeme {
        self.tokens.get(self.at).map_or(&Lexeme::End, |token| &token.kind)
    }

    pub(super) fn peek_next(&self) -> &Lexeme {
        self.tokens.get(self.at + 1).map_or(&Lexeme::End, |token| &token.kind)
    }

    pub(super) fn next(&mut self) -> Lexeme {
        let kind = self.peek().clone();
        self.at += 1;
        kind
    }

    /// Takes the last token back.
    pub(super) fn back(&mut self) {
        self.at -= 1;
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Lexeme::Op(found) if *found == op)
    }

    pub(super) fn take_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        self.at += usize::from(found);
        found
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Lexeme::Name(found) if found == name)
    }

    pub(super) fn take_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect_op(&mut self, op: &'static str) -> JinjaResult<()> {
        if self.take_op(op) { Ok(()) } else { Err(self.unexpected(&format!("`{op}`"))) }
    }

    pub(super) fn name(&mut self) -> JinjaResult<Box<str>> {
        if let Lexeme::Name(name) = self.next() {
            return Ok(name.into());
        }
        self.back();
        Err(self.unexpected("a name"))
    }

    pub(super) fn unexpected(&self, expected: &str) -> Fault {
        let found = match self.peek() {
            Lexeme::Data(_) | Lexeme::Print | Lexeme::Block => "text".to_owned(),
            Lexeme::PrintEnd => "the end of `{{`".to_owned(),
            Lexeme::BlockEnd => "the end of `{%`".to_owned(),
            Lexeme::Name(name) => format!("`{name}`"),
            Lexeme::Text(_) => "a text".to_owned(),
            Lexeme::Int(n) => n.to_string(),
            Lexeme::Float(n) => n.to_string(),
            Lexeme::Op(op) => format!("`{op}`"),
            Lexeme::End => "the end of the template".to_owned(),
        };
        Fault::new(format!("there is {found} where {expected} is expected"))
    }

    /// Parses what is nested.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> JinjaResult<T>) -> JinjaResult<T> {
        if self.depth == NESTED {
            return Err(Fault::new(format!("it nests blocks or expressions more than {NESTED} times")));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn end(&mut self) -> JinjaResult<()> {
        if self.next() == Lexeme::BlockEnd {
            return Ok(());
        }
        self.back();
        Err(self.unexpected("the end of `{%`"))
    }

    /// Statements up to a block with one of these names, which is taken without its end; up to the template's end if there
    /// are no names.
    fn block(&mut self, ends: &[&str]) -> JinjaResult<(Vec<Stmt>, String)> {
        self.nested(|p| {
            let mut all = Vec::new();
            loop {
                match p.next() {
                    Lexeme::Data(data) => all.push(Stmt::Data(data.into())),
                    Lexeme::Print => {
                        all.push(Stmt::Print(p.tuple()?));
                        if p.next() != Lexeme::PrintEnd {
                            p.back();
                            return Err(p.unexpected("the end of `{{`"));
                        }
                    }
                    Lexeme::Block => {
                        let name = p.name()?;
                        if ends.contains(&&*name) {
                            return Ok((all, name.into()));
                        }
                        p.statement(&name, &mut all)?;
                    }
                    _ => {
                        p.back();
                        if ends.is_empty() && *p.peek() == Lexeme::End {
                            return Ok((all, String::new()));
                        }
                        return Err(p.unexpected(&format!("`{}`", ends.last().unwrap_or(&""))));
                    }
                }
            }
        })
    }

    /// The body of a block up to its own end.
    fn body(&mut self, end: &str) -> JinjaResult<Vec<Stmt>> {
        self.end()?;
        let (body, _) = self.block(&[end])?;
        Ok(body)
    }

    fn statement(&mut self, name: &str, all: &mut Vec<Stmt>) -> JinjaResult<()> {
        let statement = match name {
            "for" => self.for_loop()?,
            "if" => self.condition()?,
            "set" => self.set()?,
            "macro" => self.definition()?,
            "with" => {
                let mut values = Vec::new();
                while *self.peek() != Lexeme::BlockEnd {
                    if !values.is_empty() {
                        self.expect_op(",")?;
                    }
                    let target = self.target()?;
                    self.expect_op("=")?;
                    values.push((target, self.expression()?));
                }
                Stmt::With(values, self.body("endwith")?)
            }
            "filter" => {
                let mut filters = vec![self.filter()?];
                while self.take_op("|") {
                    filters.push(self.filter()?);
                }
                Stmt::FilterBlock(filters, self.body("endfilter")?)
            }
            "generation" => Stmt::Scope(self.body("endgeneration")?),
            "break" | "continue" if self.loops > 0 => {
                if name == "break" {
                    Stmt::Break
                } else {
                    Stmt::Continue
                }
            }
            "break" | "continue" => return Err(Fault::new(format!("`{name}` is outside of a loop"))),
            other => {
                self.back();
                return Err(Fault::new(format!("there is no block `{other}` here")));
            }
        };
        all.push(statement);
        self.end()
    }

    fn for_loop(&mut self) -> JinjaResult<Stmt> {
        let target = self.target()?;
        if !self.take_name("in") {
            return Err(self.unexpected("`in`"));
        }
        let items = self.tuple_of(false)?;
        let filter = if self.take_name("if") { Some(self.expression()?) } else { None };
        self.end()?;
        self.loops += 1;
        let (body, end) = self.block(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = if end == "else" { self.body("endfor")? } else { Vec::new() };
        Ok(Stmt::For(Box::new(For { target, items, filter, body, otherwise })))
    }

    fn condition(&mut self) -> JinjaResult<Stmt> {
        let mut arms = Vec::new();
        loop {
            let condition = self.tuple_of(true)?;
            self.end()?;
            let (body, end) = self.block(&["elif", "else", "endif"])?;
            arms.push((condition, body));
            match &*end {
                "elif" => {}
                "else" => return Ok(Stmt::If(arms, self.body("endif")?)),
                _ => return Ok(Stmt::If(arms, Vec::new())),
            }
        }
    }

    fn set(&mut self) -> JinjaResult<Stmt> {
        let target = self.target()?;
        if self.take_op("=") {
            return Ok(Stmt::Set(target, self.tuple()?));
        }
        let mut filters = Filters::new();
        while self.take_op("|") {
            filters.push(self.filter()?);
        }
        Ok(Stmt::SetBlock(target, filters, self.body("endset")?))
    }

    fn definition(&mut self) -> JinjaResult<Stmt> {
        let name = self.name()?;
        self.expect_op("(")?;
        let mut params = Vec::new();
        while !self.take_op(")") {
            if !params.is_empty() {
                self.expect_op(",")?;
                if self.take_op(")") {
                    break;
                }
            }
            let param = self.name()?;
            let default = if self.take_op("=") { Some(self.expression()?) } else { None };
            params.push((param, default));
        }
        let outside = std::mem::take(&mut self.loops);
        let body = self.body("endmacro")?;
        self.loops = outside;
        self.macros.push(Macro { name, params, body });
        Ok(Stmt::Macro(self.macros.len() - 1))
    }

    /// Names, attributes of namespaces, or several of them.
    fn target(&mut self) -> JinjaResult<Target> {
        let mut all = Vec::new();
        let mut is_tuple = false;
        loop {
            all.push(self.nested(Self::one_target)?);
            if !self.take_op(",") {
                break;
            }
            is_tuple = true;
            if !matches!(self.peek(), Lexeme::Name(name) if name != "in") && !self.is_op("(") {
                break;
            }
        }
        match all.pop() {
            Some(only) if all.is_empty() && !is_tuple => Ok(only),
            Some(last) => {
                all.push(last);
                Ok(Target::Tuple(all))
            }
            None => Err(self.unexpected("a name")),
        }
    }

    fn one_target(&mut self) -> JinjaResult<Target> {
        if self.take_op("(") {
            let inner = self.target()?;
            self.expect_op(")")?;
            return Ok(inner);
        }
        let name = self.name()?;
        if ["true", "false", "none", "True", "False", "None"].contains(&&*name) {
            return Err(Fault::new(format!("nothing can be assigned to `{name}`")));
        }
        if self.take_op(".") {
            return Ok(Target::Attr(name, self.name()?));
        }
        Ok(Target::Name(name))
    }

    pub(super) fn filter(&mut self) -> JinjaResult<(Box<str>, CallArgs)> {
        let name = self.name()?;
        let args = if self.take_op("(") { self.args()? } else { CallArgs::default() };
        Ok((name, args))
    }

    /// An expression, or several with commas between.
    pub(super) fn tuple(&mut self) -> JinjaResult<Node> {
        self.tuple_of(true)
    }

    /// [`Parser::tuple`]; conditions (`a if b else c`) may be left for the block.
    fn tuple_of(&mut self, conditions: bool) -> JinjaResult<Node> {
        let line = self.line();
        let one = |p: &mut Self| if conditions { p.expression() } else { p.plain() };
        let first = one(self)?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.take_op(",") {
            if matches!(self.peek(), Lexeme::PrintEnd | Lexeme::BlockEnd | Lexeme::Op(")")) {
                break;
            }
            all.push(one(self)?);
        }
        Self::node(Expr::Tuple(all), line)
    }
}
