//! Rust sources: which items carry which aliases, and which C functions are called.
//!
//! This works on tokens rather than on items, because most builders come out of tables: a `macro_rules` whose text says
//! `#[doc(alias = $alias)]` and `sys::$c`, and calls of it that hold the names.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, Item};

/// An item that says that it stands for something of C's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alias {
    /// C's name.
    pub(crate) name: String,
    /// Such as `Context::relu`.
    pub(crate) item: String,
}

/// What one file says.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) aliases: Vec<Alias>,
    /// C names that follow `sys::`, or are asked for by `c"name"`.
    pub(crate) calls: BTreeSet<String>,
}

impl Source {
    /// Reads a file, less its tests.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut file = syn::parse_file(text).context("not Rust")?;
        remove_tests(&mut file.items);
        let mut scan = Scan::default();
        scan.walk(file.into_token_stream(), None, None);
        Ok(scan.finish())
    }
}

fn remove_tests(items: &mut Vec<Item>) {
    fn is_test(attributes: &[Attribute]) -> bool {
        attributes.iter().any(|a| a.path().is_ident("cfg") && a.to_token_stream().to_string().contains("test"))
    }
    items.retain(|item| match item {
        Item::Mod(item) => !is_test(&item.attrs),
        Item::Fn(item) => !is_test(&item.attrs),
        Item::Impl(item) => !is_test(&item.attrs),
        _ => true,
    });
    for item in items {
        if let Item::Mod(syn::ItemMod { content: Some((_, items)), .. }) = item {
            remove_tests(items);
        }
    }
}

/// What a `macro_rules` will say of each line that it is given.
#[derive(Debug, Default)]
struct Table {
    /// Items whose alias or name is a parameter.
    aliases: Vec<Alias>,
    /// Whether it calls `sys::$parameter`.
    calls: bool,
}

#[derive(Default)]
struct Scan {
    source: Source,
    tables: BTreeMap<String, Table>,
    /// Calls of macros.
    uses: Vec<(String, TokenStream)>,
}

impl Scan {
    /// `owner` is the type that the tokens belong to, `table` the macro.
    fn walk(&mut self, tokens: TokenStream, owner: Option<&str>, table: Option<&str>) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut names = Vec::new();
        let mut inner = None; // The owner of the next group in braces.
        let mut rest = tokens.as_slice();
        while let [first, after @ ..] = rest {
            let here = rest;
            rest = after;
            match (first, after) {
                (TokenTree::Punct(hash), [TokenTree::Group(attribute), after @ ..]) if hash.as_char() == '#' => {
                    names.extend(alias(attribute.stream()));
                    rest = after;
                    continue;
                }
                (
                    TokenTree::Ident(word),
                    [TokenTree::Punct(bang), TokenTree::Ident(name), TokenTree::Group(body), ..],
                ) if word == "macro_rules" && bang.as_char() == '!' => {
                    let name = name.to_string();
                    self.tables.entry(name.clone()).or_default();
                    self.walk(body.stream(), None, Some(&name));
                    rest = after.get(3..).unwrap_or_default();
                    continue;
                }
                (TokenTree::Ident(name), [TokenTree::Punct(bang), TokenTree::Group(body), ..])
                    if bang.as_char() == '!' =>
                {
                    self.uses.push((name.to_string(), body.stream()));
                }
                (TokenTree::Ident(word), _) if word == "sys" || word == "ggml_sys" => self.call(after, table),
                (TokenTree::Ident(word), _) if word == "impl" => inner = implemented(after),
                (TokenTree::Ident(word), _)
                    if ["struct", "enum", "union", "trait", "mod"].iter().any(|w| word == w) =>
                {
                    inner = name(after);
                }
                (TokenTree::Literal(literal), _) => {
                    let text = literal.to_string();
                    let name = text.strip_prefix("c\"").and_then(|t| t.strip_suffix('"'));
                    self.source.calls.extend(name.filter(|n| is_c(n)).map(str::to_owned));
                }
                (TokenTree::Group(group), _) => {
                    let braces = group.delimiter() == Delimiter::Brace;
                    let inner = if braces { inner.take() } else { None };
                    self.walk(group.stream(), inner.as_deref().or(owner), table);
                }
                _ => {}
            }
            if !names.is_empty()
                && let Some(item) = item(here, owner)
            {
                for name in names.drain(..) {
                    self.alias(Alias { name, item: item.clone() }, table);
                }
            }
        }
    }

    /// What follows `sys`: `::name`, or a parameter.
    fn call(&mut self, after: &[TokenTree], table: Option<&str>) {
        match after {
            [TokenTree::Punct(_), TokenTree::Punct(_), TokenTree::Ident(name), ..] => {
                self.source.calls.insert(name.to_string());
            }
            [TokenTree::Punct(_), TokenTree::Punct(_), TokenTree::Punct(dollar), ..] if dollar.as_char() == '$' => {
                if let Some(table) = table.and_then(|t| self.tables.get_mut(t)) {
                    table.calls = true;
                }
            }
            _ => {}
        }
    }

    fn alias(&mut self, alias: Alias, table: Option<&str>) {
        let open = alias.name.starts_with('$') || alias.item.contains('$');
        match table.and_then(|t| self.tables.get_mut(t)) {
            Some(table) if open => table.aliases.push(alias),
            _ => self.source.aliases.push(alias),
        }
    }

    /// Applies the tables to what they were called with: a line each, ended by `;`, that begins with the item's name.
    fn finish(mut self) -> Source {
        for (name, tokens) in self.uses {
            let Some(table) = self.tables.get(&name) else { continue };
            let tokens: Vec<_> = tokens.into_iter().collect();
            let ends = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ';');
            for line in tokens.split(ends) {
                let mut c = Names::default();
                c.read(line);
                if table.calls {
                    self.source.calls.extend(c.words);
                }
                let Some(first) = c.first else { continue };
                for alias in &table.aliases {
                    let item = alias.item.split("::").map(|p| if p.starts_with('$') { first.as_str() } else { p });
                    let item = item.collect::<Vec<_>>().join("::");
                    if alias.name.starts_with('$') {
                        let names = c.texts.iter();
                        self.source.aliases.extend(names.map(|n| Alias { name: n.clone(), item: item.clone() }));
                    } else {
                        self.source.aliases.push(Alias { name: alias.name.clone(), item });
                    }
                }
            }
        }
        self.source
    }
}

/// C's names in a line of a table.
#[derive(Default)]
struct Names {
    /// The line's first word.
    first: Option<String>,
    /// As words of Rust.
    words: Vec<String>,
    /// As texts.
    texts: Vec<String>,
}

impl Names {
    fn read(&mut self, tokens: &[TokenTree]) {
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    let word = word.to_string();
                    self.first.get_or_insert_with(|| word.clone());
                    self.words.extend(Some(word).filter(|w| is_c(w)));
                }
                TokenTree::Literal(literal) => self.texts.extend(text(&literal.to_string()).filter(|t| is_c(t))),
                TokenTree::Group(group) => self.read(&group.stream().into_iter().collect::<Vec<_>>()),
                TokenTree::Punct(_) => {}
            }
        }
    }
}

fn is_c(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (name.starts_with("ggml_") || name.starts_with("gguf_")) && name.chars().all(word)
}

fn text(literal: &str) -> Option<String> {
    Some(literal.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

/// The name in `doc(alias = "name")`, or the parameter in `doc(alias = $parameter)`.
fn alias(attribute: TokenStream) -> Option<String> {
    let tokens: Vec<_> = attribute.into_iter().collect();
    let [TokenTree::Ident(doc), TokenTree::Group(inside)] = tokens.as_slice() else { return None };
    let tokens: Vec<_> = inside.stream().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(word), TokenTree::Punct(_), value @ ..] if doc == "doc" && word == "alias" => match value {
            [TokenTree::Literal(literal)] => text(&literal.to_string()),
            [TokenTree::Punct(_), TokenTree::Ident(parameter)] => Some(format!("${parameter}")),
            _ => None,
        },
        _ => None,
    }
}

/// The name of the item that begins here, if one does.
fn item(tokens: &[TokenTree], owner: Option<&str>) -> Option<String> {
    let [TokenTree::Ident(word), after @ ..] = tokens else { return name(tokens) };
    let word = word.to_string();
    match word.as_str() {
        "pub" | "const" | "unsafe" | "async" | "extern" => None,
        "fn" => {
            let name = name(after)?;
            Some(owner.map_or(name.clone(), |owner| format!("{owner}::{name}")))
        }
        "struct" | "enum" | "union" | "trait" | "type" | "mod" | "static" => name(after),
        // A variant or a field.
        _ => Some(owner.map_or(word.clone(), |owner| format!("{owner}::{word}"))),
    }
}

/// A name, or the parameter that stands for one.
fn name(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [TokenTree::Ident(name), ..] => Some(name.to_string()),
        [TokenTree::Punct(dollar), TokenTree::Ident(name), ..] if dollar.as_char() == '$' => Some(format!("${name}")),
        _ => None,
    }
}

/// The type after `impl`, without generics.
fn implemented(tokens: &[TokenTree]) -> Option<String> {
    let (mut depth, mut found) = (0_i32, None);
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Punct(p) if p.as_char() == '<' => depth += 1,
            // Not the end of `->`.
            TokenTree::Punct(p) if p.as_char() == '>' => depth = (depth - 1).max(0),
            TokenTree::Ident(word) if depth == 0 && word == "for" => found = None,
            TokenTree::Ident(word) if depth == 0 && word == "where" => break,
            TokenTree::Punct(p) if depth == 0 && p.as_char() == '$' => found = name(tokens.get(i..)?),
            TokenTree::Ident(word) if depth == 0 && found.as_deref() != Some(&format!("${word}")) => {
                found = Some(word.to_string());
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases(source: &Source) -> Vec<(&str, &str)> {
        source.aliases.iter().map(|a| (a.name.as_str(), a.item.as_str())).collect()
    }

    #[test]
    fn items_are_found_with_what_they_call() {
        let source = Source::parse(
            r#"
            #[doc(alias = "ggml_cgraph")]
            #[derive(Debug)]
            pub struct Graph<'c> { raw: &'c u8 }
            impl<'c> fmt::Debug for Graph<'c> {
                /// Text about ggml_none.
                #[doc(alias = "ggml_graph_a")]
                #[doc(alias = "ggml_graph_b")]
                pub(crate) const unsafe fn a(&self) -> impl Iterator<Item = u8> { sys::ggml_graph_a(c"ggml_proc", "ggml_no") }
            }
            pub enum Error { #[doc(alias = "ggml_status")] Status { status: i32 }, Other }
            #[doc(alias = "ggml_free_function")]
            fn free() { ggml_sys::ggml_called() }
            #[cfg(test)]
            mod tests { fn t() { sys::ggml_only_in_tests() } }
            "#,
        )
        .unwrap();
        assert_eq!(
            aliases(&source),
            [
                ("ggml_cgraph", "Graph"),
                ("ggml_graph_a", "Graph::a"),
                ("ggml_graph_b", "Graph::a"),
                ("ggml_status", "Error::Status"),
                ("ggml_free_function", "free"),
            ]
        );
        assert_eq!(source.calls.into_iter().collect::<Vec<_>>(), ["ggml_called", "ggml_graph_a", "ggml_proc"]);
    }

    #[test]
    fn tables_are_applied_to_their_lines() {
        let source = Source::parse(
            r#"
            macro_rules! unary {
                ($($name:ident = $c:ident, $alias:literal, $doc:literal;)*) => {
                    impl Context { $(#[doc = $doc] #[doc(alias = $alias)] pub fn $name(&self) { self.unary(sys::$c) })* }
                };
            }
            unary! {
                abs = ggml_abs, "ggml_abs", "Absolute value";
                exp = ggml_exp, "ggml_exp", "Exponential";
            }
            macro_rules! both {
                ($($t:ident;)*) => { $(impl $t { #[doc(alias = "ggml_get_tensor")] pub fn get(&self) {} })* };
            }
            both! { Weights; State; }
            "#,
        )
        .unwrap();
        assert_eq!(
            aliases(&source),
            [
                ("ggml_abs", "Context::abs"),
                ("ggml_exp", "Context::exp"),
                ("ggml_get_tensor", "Weights::get"),
                ("ggml_get_tensor", "State::get"),
            ]
        );
        assert_eq!(source.calls.into_iter().collect::<Vec<_>>(), ["ggml_abs", "ggml_exp"]);
    }
}
