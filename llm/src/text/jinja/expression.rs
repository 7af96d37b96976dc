//! Parsing of expressions.

use super::ast::{CallArgs, Expr, Node};
use super::lex::Lexeme;
use super::parse::Parser;
use super::{Fault, JinjaResult};

/// Expressions inside each other: a sum of so many parts is as deep as that.
const HEIGHT: u32 = 200;

/// Binary operators by how strongly they bind.
const BINARY: &[(&str, u8)] = &[("+", 1), ("-", 1), ("~", 2), ("*", 3), ("/", 3), ("//", 3), ("%", 3), ("**", 4)];

const COMPARISONS: &[&str] = &["==", "!=", "<=", ">=", "<", ">"];

impl Expr {
    /// Calls `f` with each expression in this one.
    fn each(&self, f: &mut dyn FnMut(&Node)) {
        let args = |args: &CallArgs, f: &mut dyn FnMut(&Node)| {
            args.positional.iter().chain(args.named.iter().map(|(_, node)| node)).for_each(f);
        };
        match self {
            Self::None | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::Name(_) => {}
            Self::List(all) | Self::Tuple(all) => all.iter().for_each(f),
            Self::Dict(all) => all.iter().for_each(|(key, value)| {
                f(key);
                f(value);
            }),
            Self::Attr(a, _) | Self::Neg(a) | Self::Plus(a) | Self::Not(a) => f(a),
            Self::Item(a, b) | Self::Binary(_, a, b) | Self::And(a, b) | Self::Or(a, b) => {
                f(a);
                f(b);
            }
            Self::Slice(a, parts) => {
                f(a);
                parts.iter().flatten().for_each(|part| f(part));
            }
            Self::Call(a, list) | Self::Filter(a, _, list) | Self::Test(a, _, list, _) => {
                f(a);
                args(list, f);
            }
            Self::Compare(a, rest) => {
                f(a);
                for (_, node) in rest {
                    f(node);
                }
            }
            Self::If(a, b, c) => {
                f(a);
                f(b);
                if let Some(c) = c {
                    f(c);
                }
            }
        }
    }
}

impl Parser {
    /// An expression of parts; dropping and computing it goes as deep as it is high.
    pub(super) fn node(expr: Expr, line: usize) -> JinjaResult<Node> {
        let mut height = 0;
        expr.each(&mut |part| height = height.max(part.height + 1));
        if height > HEIGHT {
            return Err(Fault::new(format!("it nests expressions more than {HEIGHT} times")));
        }
        Ok(Node { expr, line, height })
    }

    /// Any expression but a tuple.
    pub(super) fn expression(&mut self) -> JinjaResult<Node> {
        self.nested(|p| {
            let line = p.line();
            let mut value = p.or()?;
            while p.take_name("if") {
                let condition = p.or()?;
                let otherwise = if p.take_name("else") { Some(Box::new(p.expression()?)) } else { None };
                value = Self::node(Expr::If(Box::new(condition), Box::new(value), otherwise), line)?;
            }
            Ok(value)
        })
    }

    /// An expression without a condition.
    pub(super) fn plain(&mut self) -> JinjaResult<Node> {
        self.nested(Self::or)
    }

    fn or(&mut self) -> JinjaResult<Node> {
        let line = self.line();
        let mut left = self.and()?;
        while self.take_name("or") {
            let right = self.and()?;
            left = Self::node(Expr::Or(Box::new(left), Box::new(right)), line)?;
        }
        Ok(left)
    }

    fn and(&mut self) -> JinjaResult<Node> {
        let line = self.line();
        let mut left = self.not()?;
        while self.take_name("and") {
            let right = self.not()?;
            left = Self::node(Expr::And(Box::new(left), Box::new(right)), line)?;
        }
        Ok(left)
    }

    fn not(&mut self) -> JinjaResult<Node> {
        let line = self.line();
        if self.take_name("not") {
            let inner = self.nested(Self::not)?;
            return Self::node(Expr::Not(Box::new(inner)), line);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> JinjaResult<Node> {
        let line = self.line();
        let left = self.binary(1)?;
        let mut rest = Vec::new();
        loop {
            let op = match self.peek() {
                Lexeme::Op(op) if COMPARISONS.contains(op) => *op,
                Lexeme::Name(name) if name == "in" => "in",
                Lexeme::Name(name) if name == "not" && matches!(self.peek_next(), Lexeme::Name(n) if n == "in") => {
                    self.next();
                    "not in"
                }
                _ => break,
            };
            self.next();
            rest.push((op, self.binary(1)?));
        }
        if rest.is_empty() { Ok(left) } else { Self::node(Expr::Compare(Box::new(left), rest), line) }
    }

    /// Operators that bind at least so strongly.
    fn binary(&mut self, least: u8) -> JinjaResult<Node> {
        let line = self.line();
        let mut left = self.unary(true)?;
        while let Lexeme::Op(op) = *self.peek() {
            let Some(&(op, strength)) = BINARY.iter().find(|(name, strength)| *name == op && *strength >= least) else {
                break;
            };
            self.next();
            let right = self.nested(|p| p.binary(strength + 1))?;
            left = Self::node(Expr::Binary(op, Box::new(left), Box::new(right)), line)?;
        }
        Ok(left)
    }

    fn unary(&mut self, filters: bool) -> JinjaResult<Node> {
        let line = self.line();
        let mut value = if self.take_op("-") {
            let inner = self.nested(|p| p.unary(false))?;
            Self::node(Expr::Neg(Box::new(inner)), line)?
        } else if self.take_op("+") {
            let inner = self.nested(|p| p.unary(false))?;
            Self::node(Expr::Plus(Box::new(inner)), line)?
        } else {
            self.primary()?
        };
        value = self.postfix(value)?;
        if filters { self.filters(value) } else { Ok(value) }
    }

    fn primary(&mut self) -> JinjaResult<Node> {
        let line = self.line();
        let expr = match self.next() {
            Lexeme::Name(name) => match &*name {
                "true" | "True" => Expr::Bool(true),
                "false" | "False" => Expr::Bool(false),
                "none" | "None" => Expr::None,
                _ => Expr::Name(name.into()),
            },
            Lexeme::Text(mut text) => {
                while let Lexeme::Text(more) = self.peek() {
                    text.push_str(more);
                    self.next();
                }
                Expr::Text(text.into())
            }
            Lexeme::Int(n) => Expr::Int(n),
            Lexeme::Float(n) => Expr::Float(n),
            Lexeme::Op("(") => {
                if self.take_op(")") {
                    Expr::Tuple(Vec::new())
                } else {
                    let inner = self.tuple()?;
                    self.expect_op(")")?;
                    return Ok(inner);
                }
            }
            Lexeme::Op("[") => Expr::List(self.list("]")?),
            Lexeme::Op("{") => {
                let mut all = Vec::new();
                while !self.take_op("}") {
                    if !all.is_empty() {
                        self.expect_op(",")?;
                        if self.take_op("}") {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    self.expect_op(":")?;
                    all.push((key, self.expression()?));
                }
                Expr::Dict(all)
            }
            _ => {
                self.back();
                return Err(self.unexpected("an expression"));
            }
        };
        Self::node(expr, line)
    }

    /// Expressions with commas between, up to an end.
    fn list(&mut self, end: &'static str) -> JinjaResult<Vec<Node>> {
        let mut all = Vec::new();
        while !self.take_op(end) {
            if !all.is_empty() {
                self.expect_op(",")?;
                if self.take_op(end) {
                    break;
                }
            }
            all.push(self.expression()?);
        }
        Ok(all)
    }

    fn postfix(&mut self, mut value: Node) -> JinjaResult<Node> {
        loop {
            let line = self.line();
            let base = Box::new(value);
            let expr = if self.take_op(".") {
                match self.peek() {
                    Lexeme::Int(n) => {
                        let index = Expr::Int(*n);
                        self.next();
                        Expr::Item(base, Box::new(Self::node(index, line)?))
                    }
                    _ => Expr::Attr(base, self.name()?),
                }
            } else if self.take_op("[") {
                self.subscript(base)?
            } else if self.take_op("(") {
                Expr::Call(base, self.args()?)
            } else {
                return Ok(*base);
            };
            value = Self::node(expr, line)?;
        }
    }

    fn subscript(&mut self, base: Box<Node>) -> JinjaResult<Expr> {
        let mut parts: [Option<Box<Node>>; 3] = [None, None, None];
        let mut colons = 0;
        for part in &mut parts {
            if !self.is_op(":") && !self.is_op("]") {
                *part = Some(Box::new(if colons == 0 { self.tuple()? } else { self.expression()? }));
            }
            if colons == 2 || !self.take_op(":") {
                break;
            }
            colons += 1;
        }
        self.expect_op("]")?;
        if colons > 0 {
            return Ok(Expr::Slice(base, parts));
        }
        let [index, ..] = parts;
        index.map(|index| Expr::Item(base, index)).ok_or_else(|| Fault::new("there is no index between `[` and `]`"))
    }

    /// Arguments up to the closing parenthesis.
    pub(super) fn args(&mut self) -> JinjaResult<CallArgs> {
        let mut args = CallArgs::default();
        let mut first = true;
        while !self.take_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.take_op(")") {
                    break;
                }
            }
            first = false;
            if matches!((self.peek(), self.peek_next()), (Lexeme::Name(_), Lexeme::Op("="))) {
                let name = self.name()?;
                self.next();
                args.named.push((name, self.expression()?));
            } else if args.named.is_empty() {
                args.positional.push(self.expression()?);
            } else {
                return Err(Fault::new("an argument without a name follows one with a name"));
            }
        }
        Ok(args)
    }

    /// Filters and tests.
    fn filters(&mut self, mut value: Node) -> JinjaResult<Node> {
        loop {
            let line = self.line();
            if self.take_op("|") {
                let (name, args) = self.filter()?;
                value = Self::node(Expr::Filter(Box::new(value), name, args), line)?;
            } else if self.take_name("is") {
                let negated = self.take_name("not");
                let name = self.name()?;
                let args = self.test_args()?;
                value = Self::node(Expr::Test(Box::new(value), name, args, negated), line)?;
            } else if self.take_op("(") {
                // A call of what a filter made.
                let args = self.args()?;
                value = Self::node(Expr::Call(Box::new(value), args), line)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// A test's arguments: in parentheses, or one without.
    fn test_args(&mut self) -> JinjaResult<CallArgs> {
        if self.take_op("(") {
            return self.args();
        }
        let mut args = CallArgs::default();
        let is_value = match self.peek() {
            Lexeme::Name(name) => !["else", "or", "and", "is", "if", "in", "not"].contains(&&**name),
            Lexeme::Text(_) | Lexeme::Int(_) | Lexeme::Float(_) | Lexeme::Op("[" | "{") => true,
            _ => false,
        };
        if is_value {
            let value = self.nested(Self::primary)?;
            args.positional.push(self.postfix(value)?);
        }
        Ok(args)
    }
}
