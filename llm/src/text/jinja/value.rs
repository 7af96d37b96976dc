//! Values of a template. They are made once and then only shared, except for namespaces, which hold no other namespaces:
//! nothing holds itself.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::rc::Rc;

use super::limits::{HEIGHT, Limits};
use super::{Fault, JinjaResult};

/// What a namespace has.
pub(super) type Attributes = RefCell<Vec<(Box<str>, Value)>>;

#[derive(Debug, Clone)]
pub(super) enum Value {
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    List(Rc<List>),
    Dict(Rc<Dict>),
    Namespace(Rc<Attributes>),
    Loop(Rc<Loop>),
    /// The index of a macro.
    Macro(usize),
    /// A function that all templates have.
    Function(&'static str),
}

#[derive(Debug)]
pub(super) struct List {
    pub(super) items: Vec<Value>,
    pub(super) is_tuple: bool,
    nest: Nest,
}

#[derive(Debug)]
pub(super) struct Dict {
    pub(super) entries: Vec<(Value, Value)>,
    nest: Nest,
}

/// Where a loop is.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) items: Rc<List>,
    pub(super) index: Cell<usize>,
    pub(super) depth: i64,
    /// What `changed` got last.
    pub(super) last: RefCell<Option<Value>>,
}

/// How deep a list is, and whether it has what changes later.
#[derive(Debug, Clone, Copy, Default)]
struct Nest {
    height: u32,
    changes: bool,
}

impl Nest {
    fn around(all: &mut dyn Iterator<Item = &Value>) -> JinjaResult<Self> {
        let mut nest = Self::default();
        for inner in all.map(Value::nest) {
            nest = Self { height: nest.height.max(inner.height + 1), changes: nest.changes || inner.changes };
        }
        if nest.height > HEIGHT {
            return Err(Fault::new(format!("it has lists inside each other more than {HEIGHT} times")));
        }
        Ok(nest)
    }
}

impl Value {
    fn nest(&self) -> Nest {
        match self {
            Self::List(list) => list.nest,
            Self::Dict(dict) => dict.nest,
            Self::Namespace(_) | Self::Loop(_) => Nest { height: 1, changes: true },
            _ => Nest::default(),
        }
    }

    /// Whether it is, or has in it, what may change later.
    pub(super) fn changes(&self) -> bool {
        self.nest().changes
    }

    pub(super) fn text(text: &str, limits: &mut Limits) -> JinjaResult<Self> {
        limits.take(text.len() + size_of::<Self>())?;
        Ok(Self::Text(text.into()))
    }

    pub(super) fn character(c: char) -> Self {
        Self::Text((*c.encode_utf8(&mut [0; 4])).into())
    }

    pub(super) fn list(items: Vec<Self>, is_tuple: bool, limits: &mut Limits) -> JinjaResult<Self> {
        limits.take((items.len() + 2) * size_of::<Self>())?;
        limits.work(items.len())?;
        let nest = Nest::around(&mut items.iter())?;
        Ok(Self::List(Rc::new(List { items, is_tuple, nest })))
    }

    /// A dictionary; of equal keys, the last counts.
    pub(super) fn dict(entries: Vec<(Self, Self)>, limits: &mut Limits) -> JinjaResult<Self> {
        limits.take((entries.len() + 1) * 2 * size_of::<Self>())?;
        let mut unique: Vec<(Self, Self)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if !matches!(key, Self::None | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_)) {
                return Err(Fault::new(format!("a {} can't be a key", key.kind())));
            }
            let mut there = None;
            for (i, (other, _)) in unique.iter().enumerate() {
                if equal(other, &key, limits)? {
                    there = Some(i);
                    break;
                }
            }
            match there.and_then(|i| unique.get_mut(i)) {
                Some((_, place)) => *place = value,
                None => unique.push((key, value)),
            }
        }
        let nest = Nest::around(&mut unique.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(Self::Dict(Rc::new(Dict { entries: unique, nest })))
    }

    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "value that is undefined",
            Self::None => "none",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "integer",
            Self::Float(_) => "float",
            Self::Text(_) => "text",
            Self::List(list) if list.is_tuple => "tuple",
            Self::List(_) => "list",
            Self::Dict(_) => "dictionary",
            Self::Namespace(_) => "namespace",
            Self::Loop(_) => "loop",
            Self::Macro(_) => "macro",
            Self::Function(_) => "function",
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined | Self::None => false,
            Self::Bool(b) => *b,
            Self::Int(n) => *n != 0,
            Self::Float(x) => *x != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Dict(dict) => !dict.entries.is_empty(),
            Self::Namespace(_) | Self::Loop(_) | Self::Macro(_) | Self::Function(_) => true,
        }
    }

    pub(super) fn as_text(&self) -> JinjaResult<&str> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(Fault::new(format!("a text is expected, but this is a {}", other.kind()))),
        }
    }

    /// Booleans are integers, too.
    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            Self::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    pub(super) fn int(&self) -> JinjaResult<i64> {
        self.as_int().ok_or_else(|| Fault::new(format!("an integer is expected, but this is a {}", self.kind())))
    }

    #[expect(clippy::cast_precision_loss, reason = "as Python's floats")]
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(x) => Some(*x),
            other => other.as_int().map(|n| n as f64),
        }
    }

    /// What a loop over it gets.
    pub(super) fn items(&self, limits: &mut Limits) -> JinjaResult<Rc<List>> {
        let items = match self {
            Self::List(list) => return Ok(Rc::clone(list)),
            Self::Undefined => Vec::new(),
            Self::Dict(dict) => dict.entries.iter().map(|(key, _)| key.clone()).collect(),
            Self::Text(text) => {
                limits.take(text.len() * 2 * size_of::<Self>())?;
                text.chars().map(Self::character).collect()
            }
            other => return Err(Fault::new(format!("a {} has no items", other.kind()))),
        };
        match Self::list(items, false, limits)? {
            Self::List(list) => Ok(list),
            _ => Err(Fault::new("no list")),
        }
    }

    /// The value of a key of a dictionary.
    pub(super) fn entry(&self, key: &Self, limits: &mut Limits) -> JinjaResult<Option<Self>> {
        let Self::Dict(dict) = self else { return Ok(None) };
        for (other, value) in &dict.entries {
            if equal(other, key, limits)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }

    /// The number of items or characters.
    pub(super) fn length(&self, limits: &mut Limits) -> JinjaResult<usize> {
        match self {
            Self::Undefined => Ok(0),
            Self::Text(text) => {
                limits.read(text.len())?;
                Ok(text.chars().count())
            }
            Self::List(list) => Ok(list.items.len()),
            Self::Dict(dict) => Ok(dict.entries.len()),
            other => Err(Fault::new(format!("a {} has no length", other.kind()))),
        }
    }
}

/// An index or a length as an integer.
pub(super) fn as_int(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn equal(a: &Value, b: &Value, limits: &mut Limits) -> JinjaResult<bool> {
    limits.work(1)?;
    Ok(match (a, b) {
        (Value::Undefined, Value::Undefined) | (Value::None, Value::None) => true,
        (Value::Text(a), Value::Text(b)) => {
            limits.read(a.len().min(b.len()))?;
            a == b
        }
        (Value::List(a), Value::List(b)) => {
            if a.is_tuple != b.is_tuple || a.items.len() != b.items.len() {
                return Ok(false);
            }
            for (a, b) in a.items.iter().zip(&b.items) {
                if !equal(a, b, limits)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(x), Value::Dict(y)) => {
            if x.entries.len() != y.entries.len() {
                return Ok(false);
            }
            for (key, value) in &x.entries {
                let Some(other) = b.entry(key, limits)? else { return Ok(false) };
                if !equal(value, &other, limits)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Loop(a), Value::Loop(b)) => Rc::ptr_eq(a, b),
        (Value::Macro(a), Value::Macro(b)) => a == b,
        (Value::Function(a), Value::Function(b)) => a == b,
        _ => match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
            (Some(a), Some(b), _, _) => a == b,
            #[expect(clippy::float_cmp, reason = "the template asks for it")]
            (_, _, Some(a), Some(b)) => a == b,
            _ => false,
        },
    })
}

/// The order of two values of a kind that has one.
pub(super) fn compare(a: &Value, b: &Value, limits: &mut Limits) -> JinjaResult<Ordering> {
    limits.work(1)?;
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => {
            limits.read(a.len().min(b.len()))?;
            return Ok(a.cmp(b));
        }
        (Value::List(a), Value::List(b)) => {
            for (a, b) in a.items.iter().zip(&b.items) {
                let order = compare(a, b, limits)?;
                if order != Ordering::Equal {
                    return Ok(order);
                }
            }
            return Ok(a.items.len().cmp(&b.items.len()));
        }
        _ => {}
    }
    let numbers = match (a.as_int(), b.as_int()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_float().zip(b.as_float()).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    numbers.ok_or_else(|| Fault::new(format!("a {} and a {} have no order", a.kind(), b.kind())))
}
