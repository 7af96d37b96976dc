//! Operators: sums, products, items and slices.

use super::eval::Run;
use super::value::{Value, as_int, equal};
use super::{Fault, JinjaResult, format, show};

impl Run<'_> {
    pub(super) fn binary(&mut self, op: &str, a: &Value, b: &Value) -> JinjaResult<Value> {
        match (op, a, b) {
            ("~", ..) => {
                let mut text = String::new();
                show::print(a, &mut text, &mut self.limits)?;
                show::print(b, &mut text, &mut self.limits)?;
                return Value::text(&text, &mut self.limits);
            }
            ("+", Value::Text(a), Value::Text(b)) => {
                self.limits.take(a.len() + b.len())?;
                return Ok(Value::Text([&**a, &**b].concat().into()));
            }
            ("+", Value::List(x), Value::List(y)) if x.is_tuple == y.is_tuple => {
                self.limits.take((x.items.len() + y.items.len()) * size_of::<Value>())?;
                let items = x.items.iter().chain(&y.items).cloned().collect();
                return Value::list(items, x.is_tuple, &mut self.limits);
            }
            ("*", Value::Text(_) | Value::List(_), n) | ("*", n, Value::Text(_) | Value::List(_)) => {
                let n = usize::try_from(n.int()?).unwrap_or(0);
                return self.repeat(if matches!(a, Value::Text(_) | Value::List(_)) { a } else { b }, n);
            }
            ("%", Value::Text(pattern), args) => {
                let args = match args {
                    Value::List(list) if list.is_tuple => list.items.clone(),
                    other => vec![other.clone()],
                };
                return format::percent(pattern, &args, &mut self.limits);
            }
            _ => {}
        }
        let wrong = || Fault::new(format!("`{op}` of a {} and a {}", a.kind(), b.kind()));
        if let (Some(a), Some(b)) = (a.as_int(), b.as_int())
            && op != "/"
        {
            return integers(op, a, b);
        }
        let (a, b) = a.as_float().zip(b.as_float()).ok_or_else(wrong)?;
        if b == 0.0 && ["/", "//", "%"].contains(&op) {
            return Err(Fault::new("a division by zero"));
        }
        Ok(Value::Float(match op {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            "//" => (a / b).floor(),
            "%" => a - b * (a / b).floor(),
            _ => a.powf(b),
        }))
    }

    fn repeat(&mut self, value: &Value, n: usize) -> JinjaResult<Value> {
        match value {
            Value::Text(text) => {
                self.limits.take(text.len().saturating_mul(n))?;
                Ok(Value::Text(text.repeat(n).into()))
            }
            Value::List(list) => {
                let all = list.items.len().saturating_mul(n);
                self.limits.take(all.saturating_mul(size_of::<Value>()))?;
                self.limits.work(all)?;
                let items = list.items.iter().cycle().take(all).cloned().collect();
                Value::list(items, list.is_tuple, &mut self.limits)
            }
            _ => Ok(Value::Undefined),
        }
    }

    /// Whether a list, a text or a dictionary has something.
    pub(super) fn contains(&mut self, all: &Value, part: &Value) -> JinjaResult<bool> {
        match all {
            Value::Text(text) => {
                self.limits.read(text.len())?;
                Ok(text.contains(part.as_text()?))
            }
            Value::Dict(_) => Ok(all.entry(part, &mut self.limits)?.is_some()),
            other => {
                let items = other.items(&mut self.limits)?;
                for item in &items.items {
                    if equal(item, part, &mut self.limits)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// An item by its index, from the end if that is negative, or the value of a key.
    pub(super) fn item(&mut self, base: &Value, index: &Value) -> JinjaResult<Value> {
        let place = |n: i64, length: usize| {
            usize::try_from(if n < 0 { n.saturating_add(as_int(length)) } else { n }).unwrap_or(usize::MAX)
        };
        match (base, index) {
            (Value::Undefined, _) => Err(Fault::new("an item of what is undefined")),
            (Value::Dict(_), key) => Ok(base.entry(key, &mut self.limits)?.unwrap_or(Value::Undefined)),
            (Value::List(list), index) => {
                let found = index.as_int().and_then(|n| list.items.get(place(n, list.items.len())));
                Ok(found.cloned().unwrap_or(Value::Undefined))
            }
            (Value::Text(text), index) => {
                let Some(n) = index.as_int() else { return Ok(Value::Undefined) };
                let length = base.length(&mut self.limits)?;
                let found = text.chars().nth(place(n, length));
                Ok(found.map_or(Value::Undefined, Value::character))
            }
            (base, Value::Text(name)) => self.attr(base, name),
            _ => Ok(Value::Undefined),
        }
    }

    /// A slice, as in Python: bounds that are negative count from the end, and a negative step goes backwards.
    pub(super) fn slice(&mut self, base: &Value, [start, stop, step]: [Option<i64>; 3]) -> JinjaResult<Value> {
        if matches!(base, Value::Undefined) {
            return Ok(Value::Undefined);
        }
        if !matches!(base, Value::List(_) | Value::Text(_)) {
            return Err(Fault::new(format!("a {} can't be sliced", base.kind())));
        }
        let all = base.items(&mut self.limits)?;
        let n = as_int(all.items.len());
        let step = step.unwrap_or(1);
        if step == 0 {
            return Err(Fault::new("a slice can't have the step 0"));
        }
        let (least, most) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let bound = |value: Option<i64>, usual: i64| match value {
            None => usual,
            Some(value) if value < 0 => value.saturating_add(n).clamp(least, most),
            Some(value) => value.clamp(least, most),
        };
        let (mut at, end) =
            if step > 0 { (bound(start, 0), bound(stop, n)) } else { (bound(start, n - 1), bound(stop, -1)) };
        let mut items = Vec::new();
        while if step > 0 { at < end } else { at > end } {
            items.extend(usize::try_from(at).ok().and_then(|i| all.items.get(i)).cloned());
            at = at.saturating_add(step);
        }
        if let Value::Text(text) = base {
            self.limits.take(text.len())?;
            let text: String = items.iter().filter_map(|item| item.as_text().ok()).collect();
            return Ok(Value::Text(text.into()));
        }
        let is_tuple = matches!(base, Value::List(list) if list.is_tuple);
        Value::list(items, is_tuple, &mut self.limits)
    }
}

/// An operation on integers, with Python's division.
fn integers(op: &str, a: i64, b: i64) -> JinjaResult<Value> {
    if b == 0 && (op == "//" || op == "%") {
        return Err(Fault::new("a division by zero"));
    }
    let floor = |a: i64, b: i64| {
        let quotient = a.checked_div(b)?;
        Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
    };
    if op == "**" && b < 0 {
        #[expect(clippy::cast_precision_loss, reason = "as Python's floats")]
        return Ok(Value::Float((a as f64).powf(b as f64)));
    }
    let result = match op {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "//" => floor(a, b),
        "%" => floor(a, b).and_then(|q| q.checked_mul(b)).and_then(|p| a.checked_sub(p)),
        _ => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    result.map(Value::Int).ok_or_else(|| Fault::new("a number is too large"))
}
