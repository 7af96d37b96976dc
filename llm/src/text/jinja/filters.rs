//! Filters of single values; those of lists are in `lists`.

use super::call::Args;
use super::eval::Run;
use super::lex::is_space;
use super::show::{self, Json};
use super::value::{Value, as_int};
use super::{Fault, JinjaResult, format};

/// What a filter gets that has no default.
pub(super) fn need(value: Option<Value>, name: &str) -> JinjaResult<Value> {
    value.ok_or_else(|| Fault::new(format!("the argument `{name}` is missing")))
}

/// A number of spaces or the like: 0 if it is negative.
fn count(value: Option<Value>, usual: usize) -> JinjaResult<usize> {
    Ok(match value {
        None | Some(Value::None) => usual,
        Some(value) => usize::try_from(value.int()?).unwrap_or(0),
    })
}

fn flag(value: Option<Value>, usual: bool) -> bool {
    value.map_or(usual, |value| value.is_true())
}

impl Run<'_> {
    /// What a value prints as.
    pub(super) fn printed(&mut self, value: &Value) -> JinjaResult<String> {
        let mut text = String::new();
        show::print(value, &mut text, &mut self.limits)?;
        Ok(text)
    }

    pub(super) fn filter(&mut self, name: &str, value: Value, args: Args) -> JinjaResult<Value> {
        let result = match name {
            "default" | "d" => {
                let [default, falsy] = args.bind(["default_value", "boolean"])?;
                let missing = matches!(value, Value::Undefined) || flag(falsy, false) && !value.is_true();
                return Ok(if missing { default.unwrap_or(Value::Text("".into())) } else { value });
            }
            "length" | "count" => {
                args.none()?;
                Ok(Value::Int(as_int(value.length(&mut self.limits)?)))
            }
            "string" => {
                args.none()?;
                let text = self.printed(&value)?;
                Value::text(&text, &mut self.limits)
            }
            "safe" => args.none().map(|()| value),
            "tojson" => self.json(&value, args),
            "int" | "float" | "abs" | "round" => Self::number(name, &value, args),
            "attr" => {
                let name = args.one()?;
                self.attr(&value, name.as_text()?)
            }
            "upper" | "lower" | "trim" | "title" | "capitalize" | "escape" | "e" | "indent" | "replace" | "center"
            | "format" | "wordcount" => {
                let text = self.printed(&value)?;
                self.text_filter(name, &text, args)
            }
            _ => self.list_filter(name, &value, args),
        };
        result.map_err(|fault| {
            if fault.message.starts_with(name) || fault.line.is_some() {
                return fault;
            }
            Fault::new(format!("{name}: {}", fault.message))
        })
    }

    fn json(&mut self, value: &Value, args: Args) -> JinjaResult<Value> {
        let [indent, ascii, sorted] = args.bind(["indent", "ensure_ascii", "sort_keys"])?;
        let indent = match indent {
            None | Some(Value::None) => None,
            Some(indent) => Some(usize::try_from(indent.int()?).unwrap_or(0)),
        };
        let json = Json { indent, ascii: flag(ascii, false), sorted: flag(sorted, false) };
        let mut text = String::new();
        json.write(value, 0, &mut text, &mut self.limits)?;
        Value::text(&text, &mut self.limits)
    }

    fn text_filter(&mut self, name: &str, text: &str, args: Args) -> JinjaResult<Value> {
        self.limits.take(text.len() * 3)?; // as long as capital letters can be
        let result = match name {
            "upper" => args.none().map(|()| text.to_uppercase())?,
            "lower" => args.none().map(|()| text.to_lowercase())?,
            "capitalize" => args.none().map(|()| capitalized(text))?,
            "title" => {
                args.none()?;
                let mut all = String::new();
                for word in text.split_inclusive(|c: char| "-({[<".contains(c) || is_space(c)) {
                    all.push_str(&capitalized(word));
                }
                all
            }
            "trim" => {
                let [chars] = args.bind(["chars"])?;
                strip(text, chars.as_ref(), [true; 2])?.to_owned()
            }
            "escape" | "e" => {
                args.none()?;
                self.limits.take(text.len() * 2)?;
                let escapes = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ("\"", "&#34;")];
                escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
            }
            "indent" => return self.indent(text, args),
            "replace" => {
                let [from, to, n] = args.bind(["s", "new", "count"])?;
                let (from, to) = (need(from, "s")?, need(to, "new")?);
                let (from, to) = (self.printed(&from)?, self.printed(&to)?);
                return self.replace(text, &from, &to, n);
            }
            "center" => {
                let [width] = args.bind(["width"])?;
                return self.pad(text, count(width, 80)?, ' ', [true; 2]);
            }
            "wordcount" => {
                args.none()?;
                let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
                return Ok(Value::Int(as_int(words.count())));
            }
            _ => return format::percent(text, &args.positional, &mut self.limits),
        };
        Value::text(&result, &mut self.limits)
    }

    fn indent(&mut self, text: &str, args: Args) -> JinjaResult<Value> {
        let [width, first, blank] = args.bind(["width", "first", "blank"])?;
        let (first, blank) = (flag(first, false), flag(blank, false));
        let indent = match width {
            Some(Value::Text(text)) => text.to_string(),
            width => {
                let width = count(width, 4)?;
                self.limits.take(width)?;
                " ".repeat(width)
            }
        };
        let lines = 1 + text.matches('\n').count();
        self.limits.take(indent.len().saturating_mul(lines))?;
        let mut all = String::new();
        for (i, line) in text.split('\n').enumerate() {
            if i > 0 {
                all.push('\n');
            }
            if if i == 0 { first } else { blank || !line.is_empty() } {
                all.push_str(&indent);
            }
            all.push_str(line);
        }
        Value::text(&all, &mut self.limits)
    }

    /// Replaces a part of a text, as often as `n` says, if it does.
    pub(super) fn replace(&mut self, text: &str, from: &str, to: &str, n: Option<Value>) -> JinjaResult<Value> {
        let most = match n {
            None | Some(Value::None) => usize::MAX,
            Some(n) => usize::try_from(n.int()?).unwrap_or(usize::MAX),
        };
        self.limits.read(text.len())?;
        let found = text.matches(from).take(most).count();
        self.limits.take(found.saturating_mul(to.len()).saturating_add(text.len()))?;
        Ok(Value::Text(text.replacen(from, to, most).into()))
    }

    /// Adds characters before and after a text, up to this length.
    pub(super) fn pad(&mut self, text: &str, width: usize, with: char, sides: [bool; 2]) -> JinjaResult<Value> {
        self.limits.read(text.len())?;
        let missing = width.saturating_sub(text.chars().count());
        self.limits.take(missing.saturating_mul(with.len_utf8()).saturating_add(text.len()))?;
        let before = match sides {
            // Python's rule for the odd one.
            [true, true] => missing / 2 + (missing & width & 1),
            [true, false] => missing,
            _ => 0,
        };
        let fill = |n: usize| std::iter::repeat_n(with, n);
        let all: String = fill(before).chain(text.chars()).chain(fill(missing - before)).collect();
        Ok(Value::Text(all.into()))
    }

    fn number(name: &str, value: &Value, args: Args) -> JinjaResult<Value> {
        match name {
            "abs" => {
                args.none()?;
                match value {
                    Value::Float(x) => Ok(Value::Float(x.abs())),
                    other => {
                        other.int()?.checked_abs().map(Value::Int).ok_or_else(|| Fault::new("a number is too large"))
                    }
                }
            }
            "round" => {
                let [precision, method] = args.bind(["precision", "method"])?;
                let x = value.as_float().ok_or_else(|| Fault::new(format!("a {} is no number", value.kind())))?;
                let precision = precision.map_or(Ok(0), |p| p.int())?;
                let precision = usize::try_from(precision).ok().filter(|p| *p <= 20);
                let precision = precision.ok_or_else(|| Fault::new("the precision must be 0 to 20"))?;
                let method = method.as_ref().map_or(Ok("common"), Value::as_text)?;
                if method == "common" && value.as_int().is_some() {
                    return Ok(value.clone());
                }
                let factor = 10_f64.powi(i32::try_from(precision).unwrap_or(0));
                Ok(Value::Float(match method {
                    "common" => format!("{x:.precision$}").parse().unwrap_or(x),
                    "ceil" => (x * factor).ceil() / factor,
                    "floor" => (x * factor).floor() / factor,
                    _ => return Err(Fault::new("the method must be 'common', 'ceil' or 'floor'")),
                }))
            }
            "int" => {
                let [default, base] = args.bind(["default", "base"])?;
                let base = base.map_or(Ok(10), |base| base.int())?;
                Ok(as_integer(value, base).map_or_else(|| default.unwrap_or(Value::Int(0)), Value::Int))
            }
            _ => {
                let [default] = args.bind(["default"])?;
                let number = match value {
                    Value::Text(text) => text.trim().replace('_', "").parse().ok(),
                    other => other.as_float(),
                };
                Ok(number.map_or_else(|| default.unwrap_or(Value::Float(0.0)), Value::Float))
            }
        }
    }
}

fn as_integer(value: &Value, base: i64) -> Option<i64> {
    let whole = |x: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "below 2^63")]
        (x.abs() < 9e18).then_some(x.trunc() as i64)
    };
    match value {
        Value::Text(text) => {
            let text = text.trim().replace('_', "");
            let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?;
            let prefix = match base {
                16 => "0x",
                8 => "0o",
                2 => "0b",
                _ => "",
            };
            let digits = text.strip_prefix(prefix).unwrap_or(&text);
            i64::from_str_radix(digits, base).ok().or_else(|| text.parse().ok().and_then(whole))
        }
        Value::Float(x) => whole(*x),
        other => other.as_int(),
    }
}

/// The first character in upper case, the others in lower case.
pub(super) fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(rest.as_str().to_lowercase().chars()).collect())
}

/// A text without white space, or without these characters, at its beginning and end.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&Value>, [left, right]: [bool; 2]) -> JinjaResult<&'t str> {
    let chars = match chars {
        None | Some(Value::None) => None,
        Some(chars) => Some(chars.as_text()?),
    };
    // Looking for each character in a long list of them would take long.
    if chars.is_some_and(|chars| chars.len() > 64) {
        return Err(Fault::new("more than 64 bytes of characters to strip"));
    }
    let goes = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(goes) } else { text };
    Ok(if right { text.trim_end_matches(goes) } else { text })
}
