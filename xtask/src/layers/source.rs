//! The imports of a library file, without comments and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use walkdir::WalkDir;

/// A file of the library.
pub(super) struct Source {
    /// Its path in the repository.
    pub(super) file: String,
    /// The library module it belongs to.
    pub(super) module: String,
    /// The library modules it names.
    pub(super) uses: BTreeSet<String>,
    pub(super) tokens: TokenStream,
}

/// Reads all files of a folder, except for tests, which have no layer.
pub(super) fn read_all(folder: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "rs") || is_tests(path.strip_prefix(folder)?) {
            continue;
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let inside = path.strip_prefix(folder)?.display().to_string().replace('\\', "/");
        sources.push(Source::parse(&format!("src/{inside}"), &text)?);
    }
    Ok(sources)
}

impl Source {
    pub(super) fn parse(file: &str, text: &str) -> Result<Self> {
        let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
        let kept = parsed.items.into_iter().filter(|item| !is_test(item));
        let tokens: TokenStream = kept.map(ToTokens::into_token_stream).collect();
        let inside = file.strip_prefix("src/").unwrap_or(file);
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs").to_owned();
        let mut uses = BTreeSet::new();
        // These two only re-export.
        if !matches!(&*module, "lib" | "prelude") {
            // In a module's own file, `super` is the crate's root.
            let own = inside == format!("{module}.rs") || inside == format!("{module}/mod.rs");
            let root: &[_] = if own { &["crate", "super"] } else { &["crate"] };
            collect(&tokens, root, &mut uses);
        }
        Ok(Self { file: file.to_owned(), module, uses, tokens })
    }
}

/// Whether a file is named `tests.rs`, or lies in a folder `tests`.
fn is_tests(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "tests") || path.components().any(|part| part.as_os_str() == "tests")
}

/// Whether an item is compiled for tests only.
fn is_test(item: &syn::Item) -> bool {
    let (syn::Item::Mod(syn::ItemMod { attrs, .. }) | syn::Item::Fn(syn::ItemFn { attrs, .. })) = item else {
        return false;
    };
    attrs.iter().any(|a| a.path().is_ident("cfg") && a.meta.to_token_stream().to_string().contains("(test"))
}

/// Collects the modules after `crate::`, including those in braces.
fn collect(tokens: &TokenStream, root: &[&str], uses: &mut BTreeSet<String>) {
    let tokens: Vec<_> = tokens.clone().into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            collect(&group.stream(), root, uses);
        }
        let Some([TokenTree::Ident(start), TokenTree::Punct(a), TokenTree::Punct(b), next]) = tokens.get(i..i + 4)
        else {
            continue;
        };
        let path = root.iter().any(|root| start == root) && a.as_char() == ':' && b.as_char() == ':';
        match next {
            TokenTree::Ident(module) if path => drop(uses.insert(module.to_string())),
            TokenTree::Group(group) if path && group.delimiter() == Delimiter::Brace => firsts(&group.stream(), uses),
            _ => {}
        }
    }
}

/// The first names of the paths in braces.
fn firsts(tokens: &TokenStream, uses: &mut BTreeSet<String>) {
    let mut first = true;
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(module) if first => {
                uses.insert(module.to_string());
                first = false;
            }
            TokenTree::Punct(p) if p.as_char() == ',' => first = true,
            _ => {}
        }
    }
}

/// The modules of the names that the crate's root re-exports.
pub(super) fn exports(sources: &[Source]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in sources.iter().filter(|s| s.module == "lib") {
        for item in syn::parse2::<syn::File>(source.tokens.clone()).map(|f| f.items).unwrap_or_default() {
            match item {
                syn::Item::Use(syn::ItemUse { tree: syn::UseTree::Path(path), .. }) => {
                    leaves(&path.tree, &mut |name| drop(found.insert(name, path.ident.to_string())));
                }
                syn::Item::Use(syn::ItemUse { tree: syn::UseTree::Rename(package), .. }) => {
                    found.insert(package.rename.to_string(), package.ident.to_string().replace('_', "-"));
                }
                _ => {}
            }
        }
    }
    found
}

/// The names at the leaves of an import tree.
fn leaves(tree: &syn::UseTree, see: &mut impl FnMut(String)) {
    match tree {
        syn::UseTree::Path(path) => leaves(&path.tree, see),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, see)),
        syn::UseTree::Name(name) => see(name.ident.to_string()),
        _ => {}
    }
}
