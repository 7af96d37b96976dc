//! Values as text: as Python prints them, and as JSON.

use super::limits::Limits;
use super::value::Value;
use super::{Fault, JinjaResult};

/// Appends what a value prints as.
pub(super) fn print(value: &Value, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
    match value {
        Value::Undefined => Ok(()),
        Value::Text(text) => {
            limits.take(text.len())?;
            out.push_str(text);
            Ok(())
        }
        other => represent(other, out, limits),
    }
}

/// Appends what stands for a value in a printed list.
pub(super) fn represent(value: &Value, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
    let before = out.len();
    match value {
        Value::Undefined => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Float(x) => out.push_str(&float(*x)),
        Value::Text(text) => {
            limits.take(text.len())?;
            quote(text, out);
        }
        Value::List(list) => {
            let (open, close) = if list.is_tuple { ('(', ')') } else { ('[', ']') };
            out.push(open);
            for (i, item) in list.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                represent(item, out, limits)?;
            }
            if list.is_tuple && list.items.len() == 1 {
                out.push(',');
            }
            out.push(close);
            return limits.take(2 + 2 * list.items.len());
        }
        Value::Dict(dict) => {
            out.push('{');
            for (i, (key, value)) in dict.entries.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                represent(key, out, limits)?;
                out.push_str(": ");
                represent(value, out, limits)?;
            }
            out.push('}');
            return limits.take(2 + 4 * dict.entries.len());
        }
        Value::Namespace(_) => out.push_str("<Namespace>"),
        Value::Loop(_) => out.push_str("<LoopContext>"),
        Value::Macro(_) => out.push_str("<Macro>"),
        Value::Function(_) => out.push_str("<Function>"),
    }
    limits.take(out.len() - before)
}

/// A float as Python prints it.
pub(super) fn float(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() {
            "nan".into()
        } else if x > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let text = format!("{x:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A text between quotes, with what can't be seen escaped.
fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == mark => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 || (0x7f..0xa1).contains(&u32::from(c)) || u32::from(c) == 0xad => {
                out.extend(format!("\\x{:02x}", u32::from(c)).chars());
            }
            c => out.push(c),
        }
    }
    out.push(mark);
}

/// How JSON is written: as Python's `json` does.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Json {
    pub(super) indent: Option<usize>,
    pub(super) ascii: bool,
    pub(super) sorted: bool,
}

impl Json {
    /// Appends a value.
    pub(super) fn write(self, value: &Value, level: usize, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
        limits.work(1)?;
        let before = out.len();
        match value {
            Value::None => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Int(n) => out.push_str(&n.to_string()),
            Value::Float(x) if x.is_finite() => out.push_str(&float(*x)),
            Value::Float(x) if x.is_nan() => out.push_str("NaN"),
            Value::Float(x) => out.push_str(if *x > 0.0 { "Infinity" } else { "-Infinity" }),
            Value::Text(text) => self.text(text, out, limits)?,
            Value::List(list) => {
                out.push('[');
                for (i, item) in list.items.iter().enumerate() {
                    self.between(i, level, out, limits)?;
                    self.write(item, level + 1, out, limits)?;
                }
                return self.close(']', list.items.len(), level, out, limits);
            }
            Value::Dict(dict) => {
                let mut entries = Vec::new();
                for (key, value) in &dict.entries {
                    entries.push((Self::key(key)?, value));
                }
                if self.sorted {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    self.between(i, level, out, limits)?;
                    self.text(key, out, limits)?;
                    out.push_str(": ");
                    self.write(value, level + 1, out, limits)?;
                }
                return self.close('}', entries.len(), level, out, limits);
            }
            other => return Err(Fault::new(format!("tojson: a {} has no JSON", other.kind()))),
        }
        limits.take(out.len() - before)
    }

    fn key(key: &Value) -> JinjaResult<String> {
        Ok(match key {
            Value::Text(text) => text.to_string(),
            Value::None => "null".into(),
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => float(*x),
            other => return Err(Fault::new(format!("tojson: a {} can't be a key", other.kind()))),
        })
    }

    fn between(self, i: usize, level: usize, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
        if i > 0 {
            out.push_str(if self.indent.is_some() { "," } else { ", " });
        }
        self.line(level + 1, out, limits)
    }

    fn line(self, level: usize, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
        let Some(indent) = self.indent else { return limits.take(2) };
        let spaces = indent.saturating_mul(level);
        limits.take(spaces.saturating_add(2))?;
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', spaces));
        Ok(())
    }

    fn close(self, mark: char, n: usize, level: usize, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
        if n > 0 {
            self.line(level, out, limits)?;
        }
        out.push(mark);
        limits.take(2)
    }

    fn text(self, text: &str, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
        limits.take(text.len() + 2)?;
        let before = out.len();
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                c if u32::from(c) < 0x20 || self.ascii && !c.is_ascii() => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.extend(format!("\\u{unit:04x}").chars());
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
        limits.take(out.len() - before)
    }
}
