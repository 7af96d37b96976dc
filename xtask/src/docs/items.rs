//! Which public items of the library have an example, by rustdoc's JSON.
//!
//! The JSON is read as values, not by the crate `rustdoc-types`, of which each version takes the output of one compiler.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::FEATURES;
use crate::workspace::{self, Workspace};

/// A public struct, enum, trait, function, or method.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: &'static str,
    pub(super) path: String,
    pub(super) has_example: bool,
}

impl Item {
    /// Whether it is a struct, an enum or a trait.
    pub(super) fn is_type(&self) -> bool {
        !matches!(self.kind, METHOD | FUNCTION)
    }

    pub(super) fn is_method(&self) -> bool {
        self.kind == METHOD
    }
}

const METHOD: &str = "method";
const FUNCTION: &str = "function";

/// How many of some items have an example.
#[derive(Clone, Copy)]
pub(super) struct Share {
    with: usize,
    all: usize,
}

impl Share {
    /// Of those that `is` picks.
    pub(super) fn of(items: &[Item], is: fn(&Item) -> bool) -> Self {
        let all = items.iter().filter(|item| is(item));
        Self { with: all.clone().filter(|item| item.has_example).count(), all: all.count() }
    }

    pub(super) fn is_all(self) -> bool {
        self.with == self.all
    }

    /// Rounded down, so that 100 is all.
    pub(super) fn percent(self) -> usize {
        100 * self.with / self.all.max(1)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}% ({} of {})", self.percent(), self.with, self.all)
    }
}

/// The published crates besides that of declarations: package, library, and features.
const CRATES: [(&str, &str, &str); 3] =
    [("libggml", "ggml", FEATURES), ("ggml-gguf", "ggml_gguf", ""), ("ggml-draw", "ggml_draw", "")];

/// Lets rustdoc describe the crates as JSON, and reads it. The folder is its own, because the variable that stable
/// rustdoc needs for this makes cargo compile dependencies again.
pub(super) fn read(workspace: &Workspace) -> Result<Vec<Item>> {
    let target = workspace.root.join("target/docs-json");
    let mut items = Vec::new();
    for (package, library, features) in CRATES {
        let mut command = workspace.cargo(&workspace.root);
        command.args(["rustdoc", "--package", package, "--lib", "--features", features, "--target-dir"]).arg(&target);
        command.args(["--", "-Zunstable-options", "--output-format", "json"]);
        command.env("DOCS_RS", "1").env("RUSTC_BOOTSTRAP", "1");
        workspace::check(&mut command)?;
        let path = target.join(format!("doc/{library}.json"));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        items.append(&mut public(&serde_json::from_str(&text)?)?);
    }
    let types = items.iter().filter(|item| item.is_type()).count();
    ensure!(
        types > 100 && items.len() > 5 * types,
        "{types} types and {} items: is the JSON of a new form?",
        items.len()
    );
    Ok(items)
}

/// The public items below a crate's root, except for hidden ones, which the JSON lacks.
fn public(json: &Value) -> Result<Vec<Item>> {
    let root = json.get("root").context("the JSON has no root")?;
    let mut walk =
        Walk { index: json.get("index").context("the JSON has no index")?, seen: BTreeSet::new(), items: vec![] };
    walk.visit(root, "");
    Ok(walk.items)
}

struct Walk<'a> {
    index: &'a Value,
    seen: BTreeSet<String>,
    items: Vec<Item>,
}

impl<'a> Walk<'a> {
    /// An item by its id, with its kind and what belongs to that kind; `None` for those of other crates.
    fn find(&self, id: &Value) -> Option<(&'a Value, &'a str, &'a Value)> {
        let item = self.index.get(id.to_string())?;
        let (kind, inner) = item.get("inner")?.as_object()?.iter().next()?;
        Some((item, kind, inner))
    }

    fn visit(&mut self, id: &Value, parent: &str) {
        let Some((item, kind, inner)) = self.find(id) else { return };
        let path = path(parent, item);
        let kind = match kind {
            "use" => return ids(inner, "id").for_each(|id| self.visit(id, parent)),
            _ if !self.seen.insert(id.to_string()) => return,
            "module" => return ids(inner, "items").for_each(|id| self.visit(id, &path)),
            "struct" => "struct",
            "enum" => "enum",
            "union" => "union",
            "trait" => "trait",
            "function" => FUNCTION,
            _ => return,
        };
        ids(inner, "items").for_each(|id| self.method(id, &path, false));
        for (_, _, of) in ids(inner, "impls").filter_map(|id| self.find(id)).collect::<Vec<_>>() {
            if of.get("trait").is_none_or(Value::is_null) {
                ids(of, "items").for_each(|id| self.method(id, &path, true));
            }
        }
        self.add(kind, path, item);
    }

    fn method(&mut self, id: &Value, parent: &str, inherent: bool) {
        let Some((item, "function", _)) = self.find(id) else { return };
        if !inherent || item.get("visibility").and_then(Value::as_str) == Some("public") {
            self.add(METHOD, path(parent, item), item);
        }
    }

    fn add(&mut self, kind: &'static str, path: String, item: &Value) {
        let docs = item.get("docs").and_then(Value::as_str).unwrap_or_default();
        self.items.push(Item { kind, path, has_example: has_example(docs) });
    }
}

/// The path of a module's item; that of a crate's root is its name.
fn path(parent: &str, item: &Value) -> String {
    let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
    if parent.is_empty() { name.to_owned() } else { format!("{parent}::{name}") }
}

/// The ids in a field: one, or several.
fn ids<'a>(inner: &'a Value, field: &str) -> std::slice::Iter<'a, Value> {
    match inner.get(field) {
        Some(Value::Array(ids)) => ids.iter(),
        Some(id) => std::slice::from_ref(id).iter(),
        None => [].iter(),
    }
}

/// Whether docs have a block of Rust that the tests compile.
fn has_example(docs: &str) -> bool {
    let mut inside = false;
    docs.lines().filter_map(|line| line.trim_start().strip_prefix("```")).any(|language| {
        inside = !inside;
        let rust = ["", "rust", "no_run", "should_panic", "standalone_crate"];
        inside && rust.contains(&language.split(',').next().unwrap_or_default().trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_blocks_of_rust() {
        for with in ["```\na()\n```", "text\n\n```no_run\na()\n```", "```text\n1\n```\n```\na()\n```"] {
            assert!(has_example(with), "{with}");
        }
        for without in ["", "`a()`", "```text\na()\n```", "```ignore\na()\n```\ntext"] {
            assert!(!has_example(without), "{without}");
        }
    }

    #[test]
    fn items_are_those_that_the_root_leads_to() {
        let json = r#"{"root": 0, "index": {
            "0": {"name": "ggml", "inner": {"module": {"items": [1, 2]}}},
            "1": {"inner": {"use": {"id": 3}}},
            "2": {"inner": {"use": {"id": 9}}},
            "3": {"name": "A", "docs": "```\na()\n```", "inner": {"struct": {"impls": [4, 5]}}},
            "4": {"inner": {"impl": {"trait": null, "items": [6, 7]}}},
            "5": {"inner": {"impl": {"trait": {"path": "Clone"}, "items": [6]}}},
            "6": {"name": "f", "visibility": "public", "inner": {"function": {}}},
            "7": {"name": "g", "visibility": "crate", "inner": {"function": {}}},
            "8": {"name": "Private", "inner": {"struct": {"impls": []}}}
        }}"#;
        let items = public(&serde_json::from_str(json).unwrap()).unwrap();
        let found: Vec<_> = items.iter().map(|i| (i.kind, &*i.path, i.has_example)).collect();
        assert_eq!(found, [("method", "ggml::A::f", false), ("struct", "ggml::A", true)]);
        let share = Share::of(&items, |_| true);
        assert_eq!((share.percent(), share.is_all(), share.to_string()), (50, false, "50% (1 of 2)".into()));
    }
}
