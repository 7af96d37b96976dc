//! Differences between two versions of ggml's public headers, seen through their Rust declarations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context as _, Result};
use syn::{ForeignItem, Item};

/// The kind of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Function,
    Constant,
    Type,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Function, Self::Constant, Self::Type];

    fn plural(self) -> &'static str {
        match self {
            Self::Function => "functions",
            Self::Constant => "constants and enum values",
            Self::Type => "types",
        }
    }
}

/// The declarations by kind and name.
#[derive(Debug, Default)]
pub(crate) struct Api(BTreeMap<(Kind, String), String>);

impl Api {
    /// Parses bindgen's output.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut api = Self::default();
        for item in syn::parse_file(text).context("the bindings do not parse")?.items {
            let named = match &item {
                Item::ForeignMod(block) => block.items.iter().find_map(|item| match item {
                    ForeignItem::Fn(function) => Some((Kind::Function, function.sig.ident.to_string())),
                    _ => None,
                }),
                // `_` is a layout assertion.
                Item::Const(constant) if constant.ident != "_" => Some((Kind::Constant, constant.ident.to_string())),
                Item::Struct(item) => Some((Kind::Type, item.ident.to_string())),
                Item::Union(item) => Some((Kind::Type, item.ident.to_string())),
                Item::Type(item) => Some((Kind::Type, item.ident.to_string())),
                _ => None,
            };
            if let Some(name) = named {
                api.0.insert(name, print(item));
            }
        }
        Ok(api)
    }
}

/// Prints one declaration: bindgen writes a block per function.
fn print(item: Item) -> String {
    let text = prettyplease::unparse(&syn::File { shebang: None, frontmatter: None, attrs: vec![], items: vec![item] });
    let lines = text.lines().filter(|l| !l.starts_with("#[") && !l.starts_with("unsafe extern")).map(str::trim);
    let text = lines.collect::<Vec<_>>().join(" ");
    text.strip_suffix("; }").unwrap_or(&text).trim_end_matches(';').to_owned()
}

/// The old and the new declarations.
#[derive(Debug)]
pub(crate) struct Difference<'a> {
    added: Vec<(&'a (Kind, String), &'a str)>,
    removed: Vec<(&'a (Kind, String), &'a str)>,
    changed: Vec<(&'a (Kind, String), &'a str, &'a str)>,
}

impl<'a> Difference<'a> {
    pub(crate) fn between(old: &'a Api, new: &'a Api) -> Self {
        let mut difference = Self { added: vec![], removed: vec![], changed: vec![] };
        let names: BTreeSet<_> = old.0.keys().chain(new.0.keys()).collect();
        for name in names {
            match (old.0.get(name), new.0.get(name)) {
                (Some(old), Some(new)) if old != new => difference.changed.push((name, old, new)),
                (Some(old), None) => difference.removed.push((name, old)),
                (None, Some(new)) => difference.added.push((name, new)),
                _ => {}
            }
        }
        difference
    }
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            let of = |name: &(Kind, String)| name.0 == kind;
            let added: Vec<_> = self.added.iter().filter(|(name, _)| of(name)).collect();
            let removed: Vec<_> = self.removed.iter().filter(|(name, _)| of(name)).collect();
            let changed: Vec<_> = self.changed.iter().filter(|(name, ..)| of(name)).collect();
            let (plus, minus, edited) = (added.len(), removed.len(), changed.len());
            writeln!(f, "{}: {plus} added, {minus} removed, {edited} changed", kind.plural())?;
            for (_, text) in added {
                writeln!(f, "  + {text}")?;
            }
            for (_, text) in removed {
                writeln!(f, "  - {text}")?;
            }
            for (_, old, new) in changed {
                writeln!(f, "  ~ {old}\n    {new}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"
        pub const GGML_A: u32 = 1;
        pub const GGML_COUNT: u32 = 2;
        const _: () = { ["Size of s"][::core::mem::size_of::<s>() - 4usize]; };
        #[repr(C)] pub struct s { pub x: i32 }
        unsafe extern "C-unwind" { pub fn ggml_gone(a: i32); }
        unsafe extern "C-unwind" { pub fn ggml_same(a: i32) -> i32; }
        unsafe extern "C-unwind" { pub fn ggml_edited(a: i32); }
    "#;
    const NEW: &str = r#"
        pub const GGML_A: u32 = 1;
        pub const GGML_COUNT: u32 = 3;
        pub type t = i32;
        #[repr(C)] pub struct s { pub x: i32 }
        unsafe extern "C-unwind" { pub fn ggml_same(a: i32) -> i32; }
        unsafe extern "C-unwind" { pub fn ggml_edited(a: i64); }
        unsafe extern "C-unwind" { pub fn ggml_new() -> i32; }
    "#;

    #[test]
    fn header_difference_lists_added_removed_and_changed() {
        let (old, new) = (Api::parse(OLD).unwrap(), Api::parse(NEW).unwrap());
        assert_eq!(
            Difference::between(&old, &new).to_string(),
            "functions: 1 added, 1 removed, 1 changed\n\
             \x20 + pub fn ggml_new() -> i32\n\
             \x20 - pub fn ggml_gone(a: i32)\n\
             \x20 ~ pub fn ggml_edited(a: i32)\n\
             \x20   pub fn ggml_edited(a: i64)\n\
             constants and enum values: 0 added, 0 removed, 1 changed\n\
             \x20 ~ pub const GGML_COUNT: u32 = 2\n\
             \x20   pub const GGML_COUNT: u32 = 3\n\
             types: 1 added, 0 removed, 0 changed\n\
             \x20 + pub type t = i32\n"
        );
    }
}
