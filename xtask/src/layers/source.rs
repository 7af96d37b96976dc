//! The imports and types of a file, without comments and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

/// A file of a crate.
pub(super) struct Source {
    /// Its path in the repository.
    pub(super) file: String,
    /// The module of the crate's root that it belongs to.
    pub(super) module: String,
    /// What it names in the crate's root.
    pub(super) uses: BTreeSet<String>,
    /// The types that it defines, except for those private to a function.
    pub(super) types: Vec<String>,
    pub(super) tokens: TokenStream,
}

/// Reads the files of a crate, given the repository's Rust files; tests have no layer.
pub(super) fn read_all(root: &Path, folder: &str, files: &[String]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for file in files {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
        sources.push(Source::parse(folder, file, &text)?);
    }
    Ok(sources)
}

impl Source {
    pub(super) fn parse(folder: &str, file: &str, text: &str) -> Result<Self> {
        let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
        let kept: Vec<_> = parsed.items.into_iter().filter(|item| !is_test(item)).collect();
        let mut types = Vec::new();
        for item in &kept {
            types_of(item, &mut types);
        }
        let tokens: TokenStream = kept.into_iter().map(ToTokens::into_token_stream).collect();
        let inside = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).unwrap_or(file);
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs").to_owned();
        let mut uses = BTreeSet::new();
        // These stand above all others.
        if !matches!(&*module, "lib" | "main" | "prelude") {
            // In a module's own file, `super` is the crate's root.
            let own = inside == format!("{module}.rs") || inside == format!("{module}/mod.rs");
            let root: &[_] = if own { &["crate", "super"] } else { &["crate"] };
            collect(&tokens, root, &mut uses);
        }
        Ok(Self { file: file.to_owned(), module, uses, types, tokens })
    }
}

/// Whether this is a crate's root.
pub(super) fn is_root(module: &str) -> bool {
    matches!(module, "lib" | "main")
}

/// The types that an item defines.
fn types_of(item: &syn::Item, types: &mut Vec<String>) {
    match item {
        syn::Item::Struct(syn::ItemStruct { ident, .. })
        | syn::Item::Enum(syn::ItemEnum { ident, .. })
        | syn::Item::Union(syn::ItemUnion { ident, .. })
        | syn::Item::Trait(syn::ItemTrait { ident, .. })
        | syn::Item::Type(syn::ItemType { ident, .. }) => types.push(ident.to_string()),
        syn::Item::Mod(syn::ItemMod { content: Some((_, items)), .. }) => {
            items.iter().filter(|item| !is_test(item)).for_each(|item| types_of(item, types));
        }
        _ => {}
    }
}

/// Whether an item is compiled for tests only.
pub(crate) fn is_test(item: &syn::Item) -> bool {
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

/// The modules, or other crates, of the names that the crate's root imports.
pub(super) fn exports(sources: &[Source]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in sources.iter().filter(|s| is_root(&s.module)) {
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
        syn::UseTree::Rename(name) => see(name.rename.to_string()),
        syn::UseTree::Glob(_) => {}
    }
}
