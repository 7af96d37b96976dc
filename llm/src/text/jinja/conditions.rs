//! Tests: what follows `is`.

use super::call::Args;
use super::eval::Run;
use super::value::Value;
use super::{Fault, JinjaResult};

impl Run<'_> {
    pub(super) fn test(&mut self, name: &str, value: &Value, args: Args) -> JinjaResult<bool> {
        let comparison = match name {
            "eq" | "equalto" | "==" => "==",
            "ne" | "!=" => "!=",
            "lt" | "lessthan" | "<" => "<",
            "le" | "<=" => "<=",
            "gt" | "greaterthan" | ">" => ">",
            "ge" | ">=" => ">=",
            "in" => "in",
            _ => "",
        };
        if !comparison.is_empty() {
            let other = args.one()?;
            return self.holds(comparison, value, &other);
        }
        if name == "divisibleby" {
            let n = args.one()?;
            return Ok(self.binary("%", value, &n)?.as_float() == Some(0.0));
        }
        if name == "sameas" {
            let other = args.one()?;
            return Ok(match (value, &other) {
                (Value::Bool(a), Value::Bool(b)) => a == b,
                (Value::Bool(_), _) | (_, Value::Bool(_)) => false,
                (a, b) => self.holds("==", a, b)?,
            });
        }
        args.none()?;
        let is_case = |change: fn(&str) -> String| match value {
            Value::Text(text) => change(text) == **text && text.chars().any(char::is_alphabetic),
            _ => false,
        };
        if name == "upper" || name == "lower" {
            let length = value.as_text().map_or(0, str::len);
            self.limits.take(length * 3)?;
            return Ok(is_case(if name == "upper" { str::to_uppercase } else { str::to_lowercase }));
        }
        Ok(match name {
            "defined" => !matches!(value, Value::Undefined),
            "undefined" => matches!(value, Value::Undefined),
            "none" => matches!(value, Value::None),
            "boolean" => matches!(value, Value::Bool(_)),
            "true" => matches!(value, Value::Bool(true)),
            "false" => matches!(value, Value::Bool(false)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            "number" => value.as_float().is_some(),
            "string" => matches!(value, Value::Text(_)),
            "mapping" => matches!(value, Value::Dict(_)),
            "sequence" => matches!(value, Value::Text(_) | Value::List(_) | Value::Dict(_) | Value::Undefined),
            "iterable" => {
                matches!(value, Value::Text(_) | Value::List(_) | Value::Dict(_) | Value::Undefined | Value::Loop(_))
            }
            "callable" => matches!(value, Value::Macro(_) | Value::Function(_)),
            "escaped" => false,
            "even" => value.int()? % 2 == 0,
            "odd" => value.int()? % 2 != 0,
            _ => return Err(Fault::new(format!("there is no test `{name}`"))),
        })
    }
}
