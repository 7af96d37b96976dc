//! Methods of Python's strings.

use super::call::Args;
use super::eval::Run;
use super::filters::{capitalized, need, strip};
use super::lex::is_space;
use super::value::{Value, as_int};
use super::{Fault, JinjaResult, format};

impl Run<'_> {
    #[expect(clippy::too_many_lines, reason = "an arm for each method")]
    pub(super) fn text_method(&mut self, text: &str, name: &str, args: Args) -> JinjaResult<Value> {
        self.limits.read(text.len())?;
        match name {
            "strip" | "lstrip" | "rstrip" => {
                let [chars] = args.bind(["chars"])?;
                let text = strip(text, chars.as_ref(), [name != "rstrip", name != "lstrip"])?;
                Value::text(text, &mut self.limits)
            }
            "upper" | "lower" | "title" | "capitalize" | "swapcase" | "casefold" => {
                args.none()?;
                self.limits.take(text.len() * 3)?;
                let changed = match name {
                    "upper" => text.to_uppercase(),
                    "capitalize" => capitalized(text),
                    "title" => titled(text),
                    "swapcase" => text.chars().flat_map(swapped).collect(),
                    _ => text.to_lowercase(),
                };
                Value::text(&changed, &mut self.limits)
            }
            "startswith" | "endswith" => {
                let parts = args.one()?;
                let all = match &parts {
                    Value::List(list) if list.is_tuple => &list.items[..],
                    other => std::slice::from_ref(other),
                };
                for part in all {
                    let part = part.as_text()?;
                    self.limits.read(part.len())?;
                    if if name == "startswith" { text.starts_with(part) } else { text.ends_with(part) } {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            "removeprefix" | "removesuffix" => {
                let part = args.one()?;
                let part = part.as_text()?;
                let rest = if name == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
                Value::text(rest.unwrap_or(text), &mut self.limits)
            }
            "replace" => {
                let [from, to, n] = args.bind(["old", "new", "count"])?;
                let (from, to) = (need(from, "old")?, need(to, "new")?);
                self.replace(text, from.as_text()?, to.as_text()?, n)
            }
            "split" | "rsplit" | "splitlines" | "partition" | "rpartition" => self.split(text, name, args),
            "join" => {
                let parts = args.one()?;
                let items = parts.items(&mut self.limits)?;
                if let Some(other) = items.items.iter().find(|item| !matches!(item, Value::Text(_))) {
                    return Err(Fault::new(format!("join: a text is expected, but this is a {}", other.kind())));
                }
                self.joined(&parts, text, None)
            }
            "find" | "rfind" | "index" | "rindex" | "count" => {
                let part = args.one()?;
                let part = part.as_text()?;
                if name == "count" {
                    return Ok(Value::Int(as_int(text.matches(part).count())));
                }
                let at = if name.starts_with('r') { text.rfind(part) } else { text.find(part) };
                match at.and_then(|at| text.get(..at)) {
                    Some(before) => Ok(Value::Int(as_int(before.chars().count()))),
                    None if name.ends_with("find") => Ok(Value::Int(-1)),
                    None => Err(Fault::new(format!("{name}: the text doesn't have it"))),
                }
            }
            "center" | "ljust" | "rjust" | "zfill" => {
                let [width, fill] = args.bind(["width", "fillchar"])?;
                let width = usize::try_from(need(width, "width")?.int()?).unwrap_or(0);
                let mut fills = fill.as_ref().map_or(Ok(" "), Value::as_text)?.chars();
                let (Some(fill), None) = (fills.next(), fills.next()) else {
                    return Err(Fault::new(format!("{name}: one character is expected")));
                };
                match name {
                    "center" => self.pad(text, width, fill, [true; 2]),
                    "ljust" => self.pad(text, width, fill, [false, true]),
                    "rjust" => self.pad(text, width, fill, [true, false]),
                    _ => match text.split_at_checked(1) {
                        Some((sign @ ("+" | "-"), digits)) => {
                            let padded = self.pad(digits, width.saturating_sub(1), '0', [true, false])?;
                            self.binary("+", &Value::Text(sign.into()), &padded)
                        }
                        _ => self.pad(text, width, '0', [true, false]),
                    },
                }
            }
            "format" => format::braces(text, &args, self),
            _ => {
                args.none()?;
                let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
                Ok(Value::Bool(match name {
                    "isdigit" | "isdecimal" | "isnumeric" => all(char::is_numeric),
                    "isalpha" => all(char::is_alphabetic),
                    "isalnum" => all(char::is_alphanumeric),
                    "isspace" => all(is_space),
                    "isascii" => text.is_ascii(),
                    "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
                    "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
                    _ => return Err(Fault::new(format!("there is no method `{name}` of a text"))),
                }))
            }
        }
    }

    fn split(&mut self, text: &str, name: &str, args: Args) -> JinjaResult<Value> {
        if name == "splitlines" {
            let [keep] = args.bind(["keepends"])?;
            let keep = keep.is_some_and(|keep| keep.is_true());
            return self.parts(lines(text, keep));
        }
        let [separator, n] = args.bind(["sep", "maxsplit"])?;
        let most = n.map_or(Ok(-1), |n| n.int())?;
        let most = usize::try_from(most).unwrap_or(usize::MAX - 1);
        let separator = match &separator {
            None | Some(Value::None) => None,
            Some(separator) => Some(separator.as_text()?),
        };
        if separator == Some("") {
            return Err(Fault::new(format!("{name}: the separator is empty")));
        }
        match (name, separator) {
            ("partition" | "rpartition", Some(separator)) => {
                let found = if name == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
                let parts = match found {
                    Some((before, after)) => [before, separator, after],
                    None if name == "partition" => [text, "", ""],
                    None => ["", "", text],
                };
                let mut items = Vec::new();
                for part in parts {
                    items.push(Value::text(part, &mut self.limits)?);
                }
                Value::list(items, true, &mut self.limits)
            }
            ("split", Some(separator)) => self.parts(text.splitn(most.saturating_add(1), separator)),
            ("rsplit", Some(separator)) => {
                self.limits.take(text.len() * size_of::<&str>() / separator.len())?;
                let mut parts: Vec<_> = text.rsplitn(most.saturating_add(1), separator).collect();
                parts.reverse();
                self.parts(parts.into_iter())
            }
            ("split", None) => {
                let mut rest = text.trim_start_matches(is_space);
                let mut left = most;
                self.parts(std::iter::from_fn(|| {
                    if rest.is_empty() {
                        return None;
                    }
                    let end = rest.find(is_space).filter(|_| left > 0).unwrap_or(rest.len());
                    let (part, after) = rest.split_at_checked(end)?;
                    left = left.saturating_sub(1);
                    rest = after.trim_start_matches(is_space);
                    Some(part)
                }))
            }
            _ => Err(Fault::new(format!("{name}: a separator is expected"))),
        }
    }

    fn parts(&mut self, parts: impl Iterator<Item = impl AsRef<str>>) -> JinjaResult<Value> {
        let mut items = Vec::new();
        for part in parts {
            items.push(Value::text(part.as_ref(), &mut self.limits)?);
        }
        Value::list(items, false, &mut self.limits)
    }
}

/// Lines, without their ends or with them.
fn lines(text: &str, keep: bool) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').map(move |line| if keep { line } else { line.strip_suffix('\n').unwrap_or(line) })
}

/// Each word's first letter in upper case, the others in lower case; a word is made of letters.
fn titled(text: &str) -> String {
    let mut all = String::new();
    let mut inside = false;
    for c in text.chars() {
        if inside {
            all.extend(c.to_lowercase());
        } else {
            all.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    all
}

fn swapped(c: char) -> Vec<char> {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}
