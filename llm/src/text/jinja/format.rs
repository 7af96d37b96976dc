//! Formats: `%` as in C, and braces.

use super::call::Args;
use super::eval::Run;
use super::limits::Limits;
use super::value::Value;
use super::{Fault, JinjaResult, show};

/// How a value is written.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of C's formats")]
struct Spec {
    minus: bool,
    plus: bool,
    space: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// Python's `%` of a text: values for each `%s`, `%d` and so on.
pub(super) fn percent(pattern: &str, args: &[Value], limits: &mut Limits) -> JinjaResult<Value> {
    let mut out = String::new();
    let mut args = args.iter();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        limits.take(before.len())?;
        out.push_str(before);
        let mut spec = Spec::default();
        let flags = after.len() - after.trim_start_matches(['-', '+', ' ', '0', '#']).len();
        let (flags, after) = after.split_at_checked(flags).unwrap_or(("", after));
        (spec.minus, spec.plus) = (flags.contains('-'), flags.contains('+'));
        (spec.space, spec.zero) = (flags.contains(' '), flags.contains('0'));
        let (width, after) = digits(after)?;
        spec.width = width.unwrap_or(0);
        let (precision, after) = match after.strip_prefix('.') {
            Some(after) => digits(after).map(|(n, after)| (Some(n.unwrap_or(0)), after))?,
            None => (None, after),
        };
        spec.precision = precision;
        let mut characters = after.chars();
        let kind = characters.next().ok_or_else(|| Fault::new("a format ends after `%`"))?;
        rest = characters.as_str();
        limits.take(spec.width.saturating_add(spec.precision.unwrap_or(0)))?;
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = args.next().ok_or_else(|| Fault::new("a format has more parts than there are values"))?;
        spec.write(kind, value, &mut out, limits)?;
    }
    limits.take(rest.len())?;
    out.push_str(rest);
    if args.next().is_some() {
        return Err(Fault::new("a format has fewer parts than there are values"));
    }
    Value::text(&out, limits)
}

/// A number at the beginning.
fn digits(text: &str) -> JinjaResult<(Option<usize>, &str)> {
    let n = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Some((number, rest)) = text.split_at_checked(n).filter(|_| n > 0) else { return Ok((None, text)) };
    let number = number.parse().map_err(|_| Fault::new("the width of a format is too large"))?;
    Ok((Some(number), rest))
}

impl Spec {
    fn write(&self, kind: char, value: &Value, out: &mut String, limits: &mut Limits) -> JinjaResult<()> {
        let mut text = String::new();
        let numeric = !"srac".contains(kind);
        match kind {
            's' => show::print(value, &mut text, limits)?,
            'r' | 'a' => show::represent(value, &mut text, limits)?,
            'c' => text.push_str(value.as_text()?),
            'd' | 'i' | 'u' => match value {
                #[expect(clippy::cast_possible_truncation, reason = "as Python, for numbers that fit")]
                Value::Float(x) if x.abs() < 9e18 => text = (x.trunc() as i64).to_string(),
                other => text = other.int()?.to_string(),
            },
            'x' => text = format!("{:x}", value.int()?),
            'X' => text = format!("{:X}", value.int()?),
            'o' => text = format!("{:o}", value.int()?),
            'f' | 'F' => {
                let x = value.as_float().ok_or_else(|| Fault::new(format!("a {} is no number", value.kind())))?;
                // More digits than a float has.
                let precision = self.precision.unwrap_or(6);
                if precision > 400 {
                    return Err(Fault::new("the precision of a format is too large"));
                }
                text = format!("{x:.precision$}");
            }
            other => return Err(Fault::new(format!("there is no format `%{other}`"))),
        }
        if let Some(precision) = self.precision.filter(|_| !numeric) {
            text = text.chars().take(precision).collect();
        }
        if numeric && !text.starts_with('-') && (self.plus || self.space) {
            text.insert(0, if self.plus { '+' } else { ' ' });
        }
        let missing = self.width.saturating_sub(text.chars().count());
        let fill = |c: char| std::iter::repeat_n(c, missing);
        if self.minus {
            out.push_str(&text);
            out.extend(fill(' '));
        } else if self.zero && numeric {
            let sign = usize::from(text.starts_with(['-', '+', ' ']));
            let (sign, number) = text.split_at_checked(sign).unwrap_or(("", &text));
            out.push_str(sign);
            out.extend(fill('0'));
            out.push_str(number);
        } else {
            out.extend(fill(' '));
            out.push_str(&text);
        }
        Ok(())
    }
}

/// Python's `format` of a text: values for `{}`, `{0}` and `{name}`, without anything else in the braces.
pub(super) fn braces(pattern: &str, args: &Args, run: &mut Run<'_>) -> JinjaResult<Value> {
    let mut out = String::new();
    let mut next = 0;
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
        run.limits.take(before.len() + 1)?;
        out.push_str(before);
        if let Some(after) = after.strip_prefix("{{").or_else(|| after.strip_prefix("}}")) {
            out.push_str(rest.get(at..at + 1).unwrap_or_default());
            rest = after;
            continue;
        }
        let field = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let (field, after) = field.ok_or_else(|| Fault::new("format: a single brace"))?;
        let value = if field.is_empty() {
            next += 1;
            args.positional.get(next - 1)
        } else if let Ok(index) = field.parse::<usize>() {
            args.positional.get(index)
        } else {
            args.named.iter().find(|(name, _)| **name == *field).map(|(_, value)| value)
        };
        let value = value.ok_or_else(|| Fault::new(format!("format: there is no value for `{{{field}}}`")))?;
        show::print(value, &mut out, &mut run.limits)?;
        rest = after;
    }
    run.limits.take(rest.len())?;
    out.push_str(rest);
    Value::text(&out, &mut run.limits)
}
