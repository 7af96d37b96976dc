//! Rendering: statements and expressions.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::ast::{Ast, Expr, Filters, For, Node, Stmt, Target};
use super::call::FUNCTIONS;
use super::limits::Limits;
use super::value::{Attributes, Loop, Value, as_int, compare, equal};
use super::{Clock, Fault, Input, JinjaResult, show};

/// Variables of a block.
#[derive(Debug, Default)]
pub(super) struct Scope {
    variables: Vec<(Box<str>, Value)>,
}

/// A rendering.
pub(super) struct Run<'t> {
    pub(super) ast: &'t Ast,
    pub(super) limits: Limits,
    pub(super) clock: &'t Clock,
    /// The first is the template's own; of a macro's, those from `base` on are seen, too.
    pub(super) scopes: Vec<Scope>,
    pub(super) base: usize,
    /// The text so far; those of blocks whose text is a value follow.
    pub(super) out: Vec<String>,
    loops: i64,
}

/// How statements end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Flow {
    On,
    Break,
    Continue,
}

/// Renders a template.
pub(super) fn render(ast: &Ast, input: &Input<'_>) -> JinjaResult<String> {
    let size = input.messages.iter().map(|m| m.role.len() + m.content.len() + 256).sum();
    let mut run = Run {
        ast,
        limits: Limits::new(input.messages.len(), size),
        clock: input.clock,
        scopes: vec![Scope::default()],
        base: 0,
        out: vec![String::new()],
        loops: 0,
    };
    let text = |text: &str| Value::Text(text.into());
    let mut messages = Vec::new();
    for message in input.messages {
        let entries = vec![(text("role"), text(&message.role)), (text("content"), text(&message.content))];
        messages.push(Value::dict(entries, &mut run.limits)?);
    }
    let messages = Value::list(messages, false, &mut run.limits)?;
    run.set_name("messages", messages)?;
    run.set_name("add_generation_prompt", Value::Bool(input.add_generation_prompt))?;
    for (name, value) in input.texts {
        run.set_name(name, text(value))?;
    }
    run.set_name("tools", Value::None)?;
    run.set_name("documents", Value::None)?;
    // The template's own variables are apart from these.
    run.scopes.push(Scope::default());
    run.base = 1;
    run.statements(&ast.body)?;
    Ok(run.out.pop().unwrap_or_default())
}

impl Run<'_> {
    fn find(&mut self, name: &str) -> JinjaResult<Value> {
        // A macro sees its own scopes, and the template's.
        let own = self.scopes.get(self.base..).unwrap_or_default().iter().rev();
        let outer = self.scopes.get(..2.min(self.base)).unwrap_or_default().iter().rev();
        let mut seen = 0;
        let mut found = None;
        'all: for scope in own.chain(outer) {
            for (other, value) in &scope.variables {
                seen += 1;
                if **other == *name {
                    found = Some(value.clone());
                    break 'all;
                }
            }
        }
        self.limits.work(seen / 8)?;
        let function = || FUNCTIONS.iter().find(|other| ***other == *name).map(|name| Value::Function(name));
        Ok(found.or_else(function).unwrap_or(Value::Undefined))
    }

    fn set_name(&mut self, name: &str, value: Value) -> JinjaResult<()> {
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        self.limits.work(scope.variables.len() / 8)?;
        if let Some((_, place)) = scope.variables.iter_mut().find(|(other, _)| **other == *name) {
            *place = value;
            return Ok(());
        }
        self.limits.take(name.len() + 64)?;
        scope.variables.push((name.into(), value));
        Ok(())
    }

    pub(super) fn assign(&mut self, target: &Target, value: Value) -> JinjaResult<()> {
        match target {
            Target::Name(name) => self.set_name(name, value),
            Target::Attr(name, attr) => {
                let Value::Namespace(space) = self.find(name)? else {
                    return Err(Fault::new(format!("`{name}` is no namespace, so its attributes can't be set")));
                };
                self.set_attr(&space, attr, value)
            }
            Target::Tuple(targets) => {
                let items = value.items(&mut self.limits)?;
                if items.items.len() != targets.len() {
                    let found = items.items.len();
                    return Err(Fault::new(format!("there are {found} values for {} names", targets.len())));
                }
                targets.iter().zip(&items.items).try_for_each(|(target, value)| self.assign(target, value.clone()))
            }
        }
    }

    /// Sets an attribute of a namespace.
    pub(super) fn set_attr(&mut self, space: &Attributes, name: &str, value: Value) -> JinjaResult<()> {
        // Else it could hold itself.
        if value.changes() {
            return Err(Fault::new("a namespace can't hold a namespace or a loop"));
        }
        let mut attributes = space.borrow_mut();
        self.limits.work(attributes.len() / 8)?;
        // The old value goes after the borrow: dropping it runs no code of the template, but is no part of this.
        if let Some((_, place)) = attributes.iter_mut().find(|(other, _)| **other == *name) {
            *place = value;
        } else {
            self.limits.take(name.len() + 64)?;
            attributes.push((name.into(), value));
        }
        Ok(())
    }

    pub(super) fn statements(&mut self, all: &[Stmt]) -> JinjaResult<Flow> {
        self.limits.enter()?;
        for statement in all {
            let flow = self.statement(statement)?;
            if flow != Flow::On {
                self.limits.leave();
                return Ok(flow);
            }
        }
        self.limits.leave();
        Ok(Flow::On)
    }

    /// Statements with variables of their own.
    fn scope(&mut self, all: &[Stmt]) -> JinjaResult<Flow> {
        self.scopes.push(Scope::default());
        let flow = self.statements(all)?;
        self.scopes.pop();
        Ok(flow)
    }

    /// The text of a block.
    pub(super) fn captured(&mut self, body: &[Stmt]) -> JinjaResult<Value> {
        self.out.push(String::new());
        self.scope(body)?;
        let text = self.out.pop().unwrap_or_default();
        Value::text(&text, &mut self.limits)
    }

    fn write(&mut self, text: &str) -> JinjaResult<()> {
        self.limits.take(text.len())?;
        if let Some(out) = self.out.last_mut() {
            out.push_str(text);
        }
        Ok(())
    }

    fn print(&mut self, value: &Value) -> JinjaResult<()> {
        let Self { out, limits, .. } = self;
        out.last_mut().map_or(Ok(()), |out| show::print(value, out, limits))
    }

    fn filtered(&mut self, mut value: Value, filters: &Filters) -> JinjaResult<Value> {
        for (name, args) in filters {
            let args = self.args(args)?;
            value = self.filter(name, value, args)?;
        }
        Ok(value)
    }

    fn statement(&mut self, statement: &Stmt) -> JinjaResult<Flow> {
        self.limits.work(1)?;
        match statement {
            Stmt::Data(text) => self.write(text)?,
            Stmt::Print(node) => {
                let value = self.eval(node)?;
                self.print(&value).map_err(|fault| fault.at(node.line))?;
            }
            Stmt::For(parts) => return self.for_loop(parts),
            Stmt::If(arms, otherwise) => {
                for (condition, body) in arms {
                    if self.eval(condition)?.is_true() {
                        return self.statements(body);
                    }
                }
                return self.statements(otherwise);
            }
            Stmt::Set(target, node) => {
                let value = self.eval(node)?;
                self.assign(target, value).map_err(|fault| fault.at(node.line))?;
            }
            Stmt::SetBlock(target, filters, body) => {
                let text = self.captured(body)?;
                let value = self.filtered(text, filters)?;
                self.assign(target, value)?;
            }
            Stmt::With(values, body) => {
                let mut all = Vec::new();
                for (target, node) in values {
                    all.push((target, self.eval(node)?));
                }
                self.scopes.push(Scope::default());
                for (target, value) in all {
                    self.assign(target, value)?;
                }
                let flow = self.statements(body)?;
                self.scopes.pop();
                return Ok(flow);
            }
            Stmt::FilterBlock(filters, body) => {
                let text = self.captured(body)?;
                let value = self.filtered(text, filters)?;
                self.print(&value)?;
            }
            Stmt::Macro(index) => {
                if let Some(definition) = self.ast.macros.get(*index) {
                    self.set_name(&definition.name, Value::Macro(*index))?;
                }
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
            Stmt::Scope(body) => return self.scope(body),
        }
        Ok(Flow::On)
    }

    fn for_loop(&mut self, parts: &For) -> JinjaResult<Flow> {
        let line = parts.items.line;
        let all = self.eval(&parts.items)?.items(&mut self.limits).map_err(|fault| fault.at(line))?;
        let mut items = all;
        if let Some(filter) = &parts.filter {
            let mut kept = Vec::new();
            for item in &items.items {
                self.scopes.push(Scope::default());
                self.assign(&parts.target, item.clone()).map_err(|fault| fault.at(line))?;
                if self.eval(filter)?.is_true() {
                    kept.push(item.clone());
                }
                self.scopes.pop();
            }
            items = Value::list(kept, false, &mut self.limits)?.items(&mut self.limits)?;
        }
        if items.items.is_empty() {
            return self.scope(&parts.otherwise);
        }
        let info = Rc::new(Loop { items, index: Cell::new(0), depth: self.loops, last: RefCell::default() });
        self.loops += 1;
        for (i, item) in info.items.items.iter().enumerate() {
            info.index.set(i);
            self.scopes.push(Scope::default());
            self.limits.work(1)?;
            self.set_name("loop", Value::Loop(Rc::clone(&info)))?;
            self.assign(&parts.target, item.clone()).map_err(|fault| fault.at(line))?;
            let flow = self.statements(&parts.body)?;
            self.scopes.pop();
            if flow == Flow::Break {
                break;
            }
        }
        self.loops -= 1;
        Ok(Flow::On)
    }

    /// The value of an expression.
    pub(super) fn eval(&mut self, node: &Node) -> JinjaResult<Value> {
        self.limits.enter().map_err(|fault| fault.at(node.line))?;
        let value = self.expr(node).map_err(|fault| fault.at(node.line))?;
        self.limits.leave();
        Ok(value)
    }

    fn all(&mut self, nodes: &[Node]) -> JinjaResult<Vec<Value>> {
        nodes.iter().map(|node| self.eval(node)).collect()
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each kind of expression")]
    fn expr(&mut self, node: &Node) -> JinjaResult<Value> {
        Ok(match &node.expr {
            Expr::None => Value::None,
            Expr::Bool(b) => Value::Bool(*b),
            Expr::Int(n) => Value::Int(*n),
            Expr::Float(x) => Value::Float(*x),
            Expr::Text(text) => Value::text(text, &mut self.limits)?,
            Expr::Name(name) => self.find(name)?,
            Expr::List(nodes) => {
                let items = self.all(nodes)?;
                Value::list(items, false, &mut self.limits)?
            }
            Expr::Tuple(nodes) => {
                let items = self.all(nodes)?;
                Value::list(items, true, &mut self.limits)?
            }
            Expr::Dict(nodes) => {
                let mut entries = Vec::new();
                for (key, value) in nodes {
                    entries.push((self.eval(key)?, self.eval(value)?));
                }
                Value::dict(entries, &mut self.limits)?
            }
            Expr::Attr(base, name) => {
                let base = self.eval(base)?;
                self.attr(&base, name)?
            }
            Expr::Item(base, index) => {
                let (base, index) = (self.eval(base)?, self.eval(index)?);
                self.item(&base, &index)?
            }
            Expr::Slice(base, parts) => {
                let base = self.eval(base)?;
                let mut bounds = [None; 3];
                for (bound, part) in bounds.iter_mut().zip(parts) {
                    if let Some(part) = part {
                        let value = self.eval(part)?;
                        *bound = if matches!(value, Value::None) { None } else { Some(value.int()?) };
                    }
                }
                self.slice(&base, bounds)?
            }
            Expr::Call(callee, args) => {
                if let Expr::Attr(base, name) = &callee.expr {
                    let base = self.eval(base)?;
                    let args = self.args(args)?;
                    self.method(&base, name, args)?
                } else if let Expr::Name(name) = &callee.expr {
                    let value = self.find(name)?;
                    let args = self.args(args)?;
                    self.function(name, &value, args)?
                } else {
                    let value = self.eval(callee)?;
                    let args = self.args(args)?;
                    self.function("", &value, args)?
                }
            }
            Expr::Filter(base, name, args) => {
                let base = self.eval(base)?;
                let args = self.args(args)?;
                self.filter(name, base, args)?
            }
            Expr::Test(base, name, args, negated) => {
                let base = self.eval(base)?;
                let args = self.args(args)?;
                Value::Bool(self.test(name, &base, args)? != *negated)
            }
            Expr::Neg(a) => self.negative(node, a)?,
            Expr::Plus(a) => {
                let a = self.eval(a)?;
                if a.as_float().is_none() {
                    return Err(Fault::new(format!("a {} has no sign", a.kind())));
                }
                a
            }
            Expr::Not(a) => Value::Bool(!self.eval(a)?.is_true()),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.eval(a)?, self.eval(b)?);
                self.binary(op, &a, &b)?
            }
            Expr::Compare(first, rest) => {
                let mut left = self.eval(first)?;
                for (op, right) in rest {
                    let right = self.eval(right)?;
                    if !self.holds(op, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Expr::And(a, b) => {
                let a = self.eval(a)?;
                if a.is_true() { self.eval(b)? } else { a }
            }
            Expr::Or(a, b) => {
                let a = self.eval(a)?;
                if a.is_true() { a } else { self.eval(b)? }
            }
            Expr::If(condition, then, otherwise) => match (self.eval(condition)?.is_true(), otherwise) {
                (true, _) => self.eval(then)?,
                (false, Some(otherwise)) => self.eval(otherwise)?,
                (false, None) => Value::Undefined,
            },
        })
    }

    fn negative(&mut self, node: &Node, inner: &Node) -> JinjaResult<Value> {
        let overflow = || Fault::new("a number is too large").at(node.line);
        match self.eval(inner)? {
            Value::Float(x) => Ok(Value::Float(-x)),
            other => {
                let n = other.int()?;
                n.checked_neg().map(Value::Int).ok_or_else(overflow)
            }
        }
    }

    /// Whether a comparison holds.
    pub(super) fn holds(&mut self, op: &str, a: &Value, b: &Value) -> JinjaResult<bool> {
        let limits = &mut self.limits;
        Ok(match op {
            "==" => equal(a, b, limits)?,
            "!=" => !equal(a, b, limits)?,
            "in" => self.contains(b, a)?,
            "not in" => !self.contains(b, a)?,
            "<" => compare(a, b, limits)?.is_lt(),
            "<=" => compare(a, b, limits)?.is_le(),
            ">" => compare(a, b, limits)?.is_gt(),
            _ => compare(a, b, limits)?.is_ge(),
        })
    }

    /// An attribute of a value, or the value of a key.
    pub(super) fn attr(&mut self, base: &Value, name: &str) -> JinjaResult<Value> {
        match base {
            Value::Undefined => Err(Fault::new(format!("`{name}` of what is undefined"))),
            Value::Dict(_) => {
                self.limits.read(name.len())?;
                let key = Value::Text(name.into());
                Ok(base.entry(&key, &mut self.limits)?.unwrap_or(Value::Undefined))
            }
            Value::Namespace(space) => {
                let attributes = space.borrow();
                self.limits.work(attributes.len() / 8)?;
                let found = attributes.iter().find(|(other, _)| **other == *name);
                Ok(found.map_or(Value::Undefined, |(_, value)| value.clone()))
            }
            Value::Loop(info) => Ok(loop_attr(info, name)),
            Value::Macro(index) if name == "name" => {
                let name = self.ast.macros.get(*index).map_or("", |m| &m.name);
                Value::text(name, &mut self.limits)
            }
            _ => Ok(Value::Undefined),
        }
    }
}

/// An attribute of `loop`.
fn loop_attr(info: &Loop, name: &str) -> Value {
    let (index, n) = (info.index.get(), info.items.items.len());
    let item = |i: Option<usize>| i.and_then(|i| info.items.items.get(i)).cloned().unwrap_or(Value::Undefined);
    match name {
        "index" => Value::Int(as_int(index + 1)),
        "index0" => Value::Int(as_int(index)),
        "revindex" => Value::Int(as_int(n - index)),
        "revindex0" => Value::Int(as_int(n - index - 1)),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(index + 1 == n),
        "length" => Value::Int(as_int(n)),
        "depth" => Value::Int(info.depth + 1),
        "depth0" => Value::Int(info.depth),
        "previtem" => item(index.checked_sub(1)),
        "nextitem" => item(Some(index + 1)),
        _ => Value::Undefined,
    }
}
