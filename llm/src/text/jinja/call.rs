//! Arguments, functions and macros.

use std::cell::RefCell;
use std::rc::Rc;

use super::eval::{Run, Scope};
use super::value::{Value, as_int};
use super::{Fault, JinjaResult, ast};

/// What all templates have.
pub(super) const FUNCTIONS: &[&str] = &["range", "dict", "namespace", "raise_exception", "strftime_now"];

/// The most numbers of a `range`, as in Jinja's sandbox.
const LONGEST_RANGE: i64 = 100_000;

/// The longest format of a time.
const LONGEST_FORMAT: usize = 256;

/// Arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Box<str>, Value)>,
}

impl Args {
    /// The arguments of these parameters, of which each may be missing.
    pub(super) fn bind<const N: usize>(self, names: [&str; N]) -> JinjaResult<[Option<Value>; N]> {
        if self.positional.len() > N {
            return Err(Fault::new(format!(
                "there are {} arguments, but at most {N} are expected",
                self.positional.len()
            )));
        }
        let mut bound = [const { None }; N];
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let place = names.iter().position(|other| **other == *name).and_then(|i| bound.get_mut(i));
            match place {
                Some(place @ None) => *place = Some(value),
                Some(_) => return Err(Fault::new(format!("the argument `{name}` is there twice"))),
                None => return Err(Fault::new(format!("there is no argument `{name}`"))),
            }
        }
        Ok(bound)
    }

    /// The only argument.
    pub(super) fn one(self) -> JinjaResult<Value> {
        let [only] = self.bind([""])?;
        only.ok_or_else(|| Fault::new("an argument is missing"))
    }

    /// Checks that there are none.
    pub(super) fn none(self) -> JinjaResult<()> {
        let [] = self.bind([])?;
        Ok(())
    }

    /// The first argument, and the others.
    pub(super) fn split(mut self) -> Option<(Value, Self)> {
        if self.positional.is_empty() {
            return None;
        }
        let first = self.positional.remove(0);
        Some((first, self))
    }
}

impl Run<'_> {
    pub(super) fn args(&mut self, args: &ast::CallArgs) -> JinjaResult<Args> {
        let mut values = Args::default();
        for node in &args.positional {
            values.positional.push(self.eval(node)?);
        }
        for (name, node) in &args.named {
            values.named.push((name.clone(), self.eval(node)?));
        }
        Ok(values)
    }

    /// Calls a macro, or a function by its name.
    pub(super) fn function(&mut self, name: &str, value: &Value, args: Args) -> JinjaResult<Value> {
        match (value, name) {
            (Value::Macro(index), _) => self.call_macro(*index, args),
            (Value::Function("range"), _) => self.range(args),
            (Value::Function("dict"), _) => {
                let Args { positional, named } = args;
                let mut entries = Vec::new();
                for value in positional {
                    let Value::Dict(dict) = value else {
                        return Err(Fault::new("dict: a dictionary or names are expected"));
                    };
                    self.limits.take(dict.entries.len() * 2 * size_of::<Value>())?;
                    entries.extend(dict.entries.iter().cloned());
                }
                entries.extend(named.into_iter().map(|(name, value)| (Value::Text(name.into()), value)));
                Value::dict(entries, &mut self.limits)
            }
            (Value::Function("namespace"), _) => {
                let space = RefCell::default();
                for value in args.positional {
                    let Value::Dict(dict) = value else {
                        return Err(Fault::new("namespace: a dictionary or names are expected"));
                    };
                    for (key, value) in &dict.entries {
                        self.set_attr(&space, key.as_text()?, value.clone())?;
                    }
                }
                for (name, value) in args.named {
                    self.set_attr(&space, &name, value)?;
                }
                Ok(Value::Namespace(Rc::new(space)))
            }
            (Value::Function("raise_exception"), _) => {
                let message = args.one()?;
                Err(Fault::new(message.as_text()?))
            }
            (Value::Function("strftime_now"), _) => {
                let format = args.one()?;
                let format = format.as_text()?;
                if format.len() > LONGEST_FORMAT {
                    return Err(Fault::new(format!("strftime_now: the format has more than {LONGEST_FORMAT} bytes")));
                }
                self.limits.work(100)?;
                let text = (self.clock)(format).map_err(|error| Fault::new(format!("strftime_now: {error}")))?;
                Value::text(&text, &mut self.limits)
            }
            (Value::Undefined, "") => Err(Fault::new("this can't be called")),
            (Value::Undefined, name) => Err(Fault::new(format!("there is no function `{name}`"))),
            (other, _) => Err(Fault::new(format!("a {} can't be called", other.kind()))),
        }
    }

    fn range(&mut self, args: Args) -> JinjaResult<Value> {
        let [a, b, step] = args.bind(["start", "stop", "step"])?;
        let a = a.ok_or_else(|| Fault::new("range: an argument is missing"))?.int()?;
        let (start, stop) = match b {
            Some(b) => (a, b.int()?),
            None => (0, a),
        };
        let step = step.map_or(Ok(1), |step| step.int())?;
        if step == 0 {
            return Err(Fault::new("range: the step can't be 0"));
        }
        let distance = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let n = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
        if n > LONGEST_RANGE.unsigned_abs() {
            return Err(Fault::new(format!("range: it has {n} numbers, but at most {LONGEST_RANGE} are supported")));
        }
        self.limits.take(usize::try_from(n).unwrap_or(usize::MAX).saturating_mul(size_of::<Value>()))?;
        let numbers = (0..).map_while(|i: i64| start.checked_add(step.checked_mul(i)?)).map(Value::Int);
        Value::list(numbers.take(usize::try_from(n).unwrap_or(0)).collect(), false, &mut self.limits)
    }

    fn call_macro(&mut self, index: usize, args: Args) -> JinjaResult<Value> {
        let ast = self.ast;
        let Some(definition) = ast.macros.get(index) else { return Ok(Value::Undefined) };
        if args.positional.len() > definition.params.len() {
            let (n, most) = (args.positional.len(), definition.params.len());
            return Err(Fault::new(format!("`{}` gets {n} arguments, but has {most}", definition.name)));
        }
        let unknown = args.named.iter().find(|(name, _)| !definition.params.iter().any(|(param, _)| param == name));
        if let Some((name, _)) = unknown {
            return Err(Fault::new(format!("`{}` has no argument `{name}`", definition.name)));
        }
        self.limits.work(args.named.len() * definition.params.len())?;
        let base = std::mem::replace(&mut self.base, self.scopes.len());
        self.scopes.push(Scope::default());
        let mut positional = args.positional.into_iter();
        for (name, default) in &definition.params {
            let given = positional
                .next()
                .or_else(|| args.named.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()));
            let value = match (given, default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(default)?,
                (None, None) => Value::Undefined,
            };
            self.assign(&ast::Target::Name(name.clone()), value)?;
        }
        let text = self.captured(&definition.body)?;
        self.scopes.pop();
        self.base = base;
        Ok(text)
    }

    /// Calls a method of a value, or a macro that is an attribute.
    pub(super) fn method(&mut self, base: &Value, name: &str, args: Args) -> JinjaResult<Value> {
        match base {
            Value::Undefined => Err(Fault::new(format!("`{name}` of what is undefined"))),
            Value::Text(text) => self.text_method(text, name, args),
            Value::Dict(dict) => match name {
                "items" | "keys" | "values" => {
                    args.none()?;
                    self.entries(dict, name)
                }
                "get" => {
                    let [key, default] = args.bind(["key", "default"])?;
                    let key = key.ok_or_else(|| Fault::new("get: an argument is missing"))?;
                    let found = base.entry(&key, &mut self.limits)?;
                    Ok(found.or(default).unwrap_or(Value::None))
                }
                _ => self.call_attr(base, name, args),
            },
            Value::List(list) => match name {
                "index" | "count" => {
                    let sought = args.one()?;
                    let mut places = Vec::new();
                    for (i, item) in list.items.iter().enumerate() {
                        if self.holds("==", item, &sought)? {
                            places.push(i);
                        }
                    }
                    match (name, places.first()) {
                        ("count", _) => Ok(Value::Int(as_int(places.len()))),
                        (_, Some(place)) => Ok(Value::Int(as_int(*place))),
                        _ => Err(Fault::new("index: the list doesn't have it")),
                    }
                }
                _ => Err(Fault::new(format!("there is no method `{name}` of a list; lists can't be changed"))),
            },
            Value::Loop(info) if name == "cycle" => {
                let n = args.positional.len();
                let item = info.index.get().checked_rem(n).and_then(|i| args.positional.get(i));
                item.cloned().ok_or_else(|| Fault::new("cycle: an argument is missing"))
            }
            Value::Loop(info) if name == "changed" => {
                let now = Value::list(args.positional, true, &mut self.limits)?;
                if now.changes() {
                    return Err(Fault::new("changed: namespaces and loops can't be compared"));
                }
                let before = info.last.replace(Some(now.clone()));
                Ok(Value::Bool(match before {
                    Some(before) => !self.holds("==", &before, &now)?,
                    None => true,
                }))
            }
            _ => self.call_attr(base, name, args),
        }
    }

    fn call_attr(&mut self, base: &Value, name: &str, args: Args) -> JinjaResult<Value> {
        match self.attr(base, name)? {
            Value::Macro(index) => self.call_macro(index, args),
            _ => Err(Fault::new(format!("there is no method `{name}` of a {}", base.kind()))),
        }
    }
}
