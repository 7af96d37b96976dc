//! Filters of lists.

use super::call::Args;
use super::eval::Run;
use super::filters::need;
use super::value::{Value, compare, equal};
use super::{Fault, JinjaResult};

impl Run<'_> {
    fn list(&mut self, items: Vec<Value>) -> JinjaResult<Value> {
        Value::list(items, false, &mut self.limits)
    }

    pub(super) fn list_filter(&mut self, name: &str, value: &Value, args: Args) -> JinjaResult<Value> {
        match name {
            "list" => {
                args.none()?;
                let items = value.items(&mut self.limits)?.items.clone();
                self.list(items)
            }
            "first" | "last" => {
                args.none()?;
                let items = value.items(&mut self.limits)?;
                let item = if name == "first" { items.items.first() } else { items.items.last() };
                Ok(item.cloned().unwrap_or(Value::Undefined))
            }
            "items" => {
                args.none()?;
                match value {
                    Value::Undefined => self.list(Vec::new()),
                    Value::Dict(dict) => self.entries(dict, "items"),
                    other => Err(Fault::new(format!("a {} has no keys", other.kind()))),
                }
            }
            "reverse" => {
                args.none()?;
                if let Value::Text(text) = value {
                    self.limits.take(text.len())?;
                    return Ok(Value::Text(text.chars().rev().collect::<String>().into()));
                }
                let items = value.items(&mut self.limits)?.items.iter().rev().cloned().collect();
                self.list(items)
            }
            "join" => self.join(value, args),
            "sort" | "unique" | "min" | "max" | "dictsort" => self.ordered(name, value, args),
            "sum" => {
                let [attribute, start] = args.bind(["attribute", "start"])?;
                let mut sum = start.unwrap_or(Value::Int(0));
                for item in &value.items(&mut self.limits)?.items {
                    let part = self.part(item, attribute.as_ref())?;
                    sum = self.binary("+", &sum, &part)?;
                }
                Ok(sum)
            }
            "map" => self.map(value, args),
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, value, args),
            "batch" | "slice" => self.groups(name, value, args),
            _ => Err(Fault::new(format!("there is no filter `{name}`"))),
        }
    }

    /// Keys, values, or both of a dictionary.
    pub(super) fn entries(&mut self, dict: &super::value::Dict, which: &str) -> JinjaResult<Value> {
        let mut all = Vec::new();
        for (key, value) in &dict.entries {
            all.push(match which {
                "keys" => key.clone(),
                "values" => value.clone(),
                _ => Value::list(vec![key.clone(), value.clone()], true, &mut self.limits)?,
            });
        }
        self.list(all)
    }

    /// The part of an item that a filter's `attribute` names: keys and indices with dots between.
    fn part(&mut self, item: &Value, attribute: Option<&Value>) -> JinjaResult<Value> {
        let path = match attribute {
            None | Some(Value::None) => return Ok(item.clone()),
            Some(Value::Int(n)) => return self.item(item, &Value::Int(*n)),
            Some(path) => path.as_text()?,
        };
        self.limits.read(path.len())?;
        let mut value = item.clone();
        for name in path.split('.') {
            let key = name.parse().map_or_else(|_| Value::Text(name.into()), Value::Int);
            value = self.item(&value, &key)?;
        }
        Ok(value)
    }

    fn join(&mut self, value: &Value, args: Args) -> JinjaResult<Value> {
        let [between, attribute] = args.bind(["d", "attribute"])?;
        let between = between.map_or(Ok(String::new()), |text| self.printed(&text))?;
        self.joined(value, &between, attribute.as_ref())
    }

    /// The items' texts with another between.
    pub(super) fn joined(&mut self, value: &Value, between: &str, attribute: Option<&Value>) -> JinjaResult<Value> {
        let mut all = String::new();
        for (i, item) in value.items(&mut self.limits)?.items.iter().enumerate() {
            if i > 0 {
                self.limits.take(between.len())?;
                all.push_str(between);
            }
            let part = self.part(item, attribute)?;
            super::show::print(&part, &mut all, &mut self.limits)?;
        }
        Value::text(&all, &mut self.limits)
    }

    /// What items are compared by.
    fn sort_key(&mut self, item: &Value, attribute: Option<&Value>, exact: bool) -> JinjaResult<Value> {
        match self.part(item, attribute)? {
            Value::Text(text) if !exact => {
                self.limits.take(text.len() * 3)?;
                Ok(Value::Text(text.to_lowercase().into()))
            }
            other => Ok(other),
        }
    }

    /// Sorts by the first of each pair; equal ones stay in their order. (`sort_by` may panic where values have no order.)
    fn sort(&mut self, mut left: Vec<(Value, Value)>, reverse: bool) -> JinjaResult<Vec<(Value, Value)>> {
        if left.len() < 2 {
            return Ok(left);
        }
        let right = left.split_off(left.len() / 2);
        let (left, right) = (self.sort(left, reverse)?, self.sort(right, reverse)?);
        let mut merged = Vec::with_capacity(left.len() + right.len());
        let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
        while let (Some((a, _)), Some((b, _))) = (left.peek(), right.peek()) {
            let order = compare(a, b, &mut self.limits)?;
            let from_right = if reverse { order.is_lt() } else { order.is_gt() };
            merged.extend(if from_right { right.next() } else { left.next() });
        }
        merged.extend(left.chain(right));
        Ok(merged)
    }

    fn ordered(&mut self, name: &str, value: &Value, args: Args) -> JinjaResult<Value> {
        let truth = |value: &Option<Value>| value.as_ref().is_some_and(Value::is_true);
        let (reverse, exact, attribute) = match name {
            "sort" => {
                let [reverse, exact, attribute] = args.bind(["reverse", "case_sensitive", "attribute"])?;
                (truth(&reverse), truth(&exact), attribute)
            }
            "dictsort" => {
                let [exact, by, reverse] = args.bind(["case_sensitive", "by", "reverse"])?;
                let by_value = matches!(&by, Some(Value::Text(by)) if &**by == "value");
                (truth(&reverse), truth(&exact), Some(Value::Int(i64::from(by_value))))
            }
            _ => {
                let [exact, attribute] = args.bind(["case_sensitive", "attribute"])?;
                (name == "max", truth(&exact), attribute)
            }
        };
        let all = match value {
            Value::Dict(dict) if name == "dictsort" => self.entries(dict, "items")?,
            other if name == "dictsort" => return Err(Fault::new(format!("a {} has no keys", other.kind()))),
            other => other.clone(),
        };
        let mut pairs = Vec::new();
        for item in &all.items(&mut self.limits)?.items {
            pairs.push((self.sort_key(item, attribute.as_ref(), exact)?, item.clone()));
        }
        if name == "unique" {
            let mut seen: Vec<(Value, Value)> = Vec::new();
            'items: for (key, item) in pairs {
                for (other, _) in &seen {
                    if equal(other, &key, &mut self.limits)? {
                        continue 'items;
                    }
                }
                seen.push((key, item));
            }
            return self.list(seen.into_iter().map(|(_, item)| item).collect());
        }
        let mut sorted = self.sort(pairs, reverse)?.into_iter().map(|(_, item)| item);
        if name == "min" || name == "max" {
            return Ok(sorted.next().unwrap_or(Value::Undefined));
        }
        let sorted = sorted.collect();
        self.list(sorted)
    }

    fn map(&mut self, value: &Value, mut args: Args) -> JinjaResult<Value> {
        let items = value.items(&mut self.limits)?;
        let mut all = Vec::new();
        if args.positional.is_empty() {
            let [attribute, default] = args.bind(["attribute", "default"])?;
            let attribute = need(attribute, "attribute")?;
            for item in &items.items {
                let part = self.part(item, Some(&attribute))?;
                let missing = matches!(part, Value::Undefined);
                all.push(if missing { default.clone().unwrap_or(part) } else { part });
            }
            return self.list(all);
        }
        let name = args.positional.remove(0);
        let name = name.as_text()?;
        if name == "map" {
            return Err(Fault::new("`map` of `map` is not supported")); // it would go as deep as it likes
        }
        for item in &items.items {
            self.limits.work(1 + args.positional.len() + args.named.len())?;
            let copied = Args { positional: args.positional.clone(), named: args.named.clone() };
            all.push(self.filter(name, item.clone(), copied)?);
        }
        self.list(all)
    }

    fn select(&mut self, name: &str, value: &Value, args: Args) -> JinjaResult<Value> {
        let wanted = name.starts_with("select");
        let (attribute, args) = if name.ends_with("attr") {
            let (attribute, rest) = args.split().ok_or_else(|| Fault::new("the name of an attribute is missing"))?;
            (Some(attribute), rest)
        } else {
            (None, args)
        };
        let test = args.split();
        let mut kept = Vec::new();
        for item in &value.items(&mut self.limits)?.items {
            let part = self.part(item, attribute.as_ref())?;
            let holds = match &test {
                None => part.is_true(),
                Some((name, rest)) => {
                    self.limits.work(1 + rest.positional.len())?;
                    let copied = Args { positional: rest.positional.clone(), named: Vec::new() };
                    self.test(name.as_text()?, &part, copied)?
                }
            };
            if holds == wanted {
                kept.push(item.clone());
            }
        }
        self.list(kept)
    }

    /// Lists of so many items, or so many lists.
    fn groups(&mut self, name: &str, value: &Value, args: Args) -> JinjaResult<Value> {
        let [n, fill] = args.bind([if name == "batch" { "linecount" } else { "slices" }, "fill_with"])?;
        let n = usize::try_from(need(n, "linecount")?.int()?).ok().filter(|n| *n > 0);
        let n = n.ok_or_else(|| Fault::new("a positive number is expected"))?;
        let items = value.items(&mut self.limits)?;
        let all = items.items.len();
        let lists = if name == "batch" { all.div_ceil(n) } else { n };
        self.limits.take(lists.saturating_mul(2 * size_of::<Value>()))?;
        let mut groups = Vec::new();
        let mut rest = items.items.iter();
        for i in 0..lists {
            let size = if name == "batch" { n } else { all / n + usize::from(i < all % n) };
            let mut group: Vec<Value> = rest.by_ref().take(size).cloned().collect();
            // Each list of `slice` that got no extra item gets one.
            let missing = if name == "batch" { n - group.len() } else { usize::from(i >= all % n) };
            if let Some(fill) = fill.as_ref().filter(|fill| !matches!(fill, Value::None)) {
                self.limits.take(missing.saturating_mul(size_of::<Value>()))?;
                group.extend(std::iter::repeat_n(fill.clone(), missing));
            }
            groups.push(self.list(group)?);
        }
        self.list(groups)
    }
}
