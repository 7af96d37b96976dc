//! `cargo xtask size`: lines of code, without comments, blank lines and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;

use crate::layers::is_test;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct SizeArguments {
    /// Fail if the library, without its RPC server, has more lines
    #[arg(long, value_name = "LINES")]
    most: Option<usize>,
}

/// What counts apart from the library, with TLS, which the client has of it.
const SERVER: &str = "src/rpc/server";
const TLS: [&str; 2] = ["src/rpc/tls.rs", "src/rpc/half.rs"];

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &SizeArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let root = &workspace.root;
    let mut sizes = BTreeMap::<String, usize>::new();
    let is_test = |file: &str| file.split('/').any(|part| matches!(part, "tests" | "tests.rs"));
    for file in workspace.files("*.rs")?.into_iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(root.join(&file)).with_context(|| format!("cannot read {file}"))?;
        *sizes.entry(part(root, &file)).or_default() += lines(&text).with_context(|| format!("cannot parse {file}"))?;
    }
    let width = sizes.keys().map(String::len).max().unwrap_or_default();
    for (part, lines) in &sizes {
        println!("{part:width$} {lines:>7}");
    }
    let library = |part: &str| (part == "src" || part.starts_with("src/")) && part != SERVER;
    let code: usize = sizes.iter().filter(|(part, _)| library(part)).map(|(_, lines)| lines).sum();
    println!("size: code={code}");
    let most = arguments.most.unwrap_or(usize::MAX);
    ensure!(code <= most, "src/ has {code} lines of code, without {SERVER}; it may have {most}");
    Ok(())
}

/// What a file belongs to: a folder of the library, or another crate.
fn part(root: &Path, file: &str) -> String {
    if Path::new(file).starts_with(SERVER) || TLS.contains(&file) {
        return SERVER.to_owned();
    }
    if file.starts_with("src/") {
        let mut parts = file.split('/');
        let folder = parts.nth(1).filter(|_| parts.next().is_some());
        return folder.map_or_else(|| "src".to_owned(), |folder| format!("src/{folder}"));
    }
    let folders = Path::new(file).ancestors().skip(1);
    let of = folders.filter(|folder| root.join(folder).join("Cargo.toml").is_file()).map(|f| f.display().to_string());
    of.into_iter().next().filter(|folder| !folder.is_empty()).unwrap_or_else(|| "benches".to_owned())
}

/// The lines that have code which isn't compiled for tests alone.
fn lines(text: &str) -> Result<usize> {
    let kept = syn::parse_file(text)?.items.into_iter().filter(|item| !is_test(item));
    let mut found = BTreeSet::new();
    kept.for_each(|item| collect(item.into_token_stream(), &mut found));
    Ok(found.len())
}

/// Collects the lines on which tokens stand, except for those of documentation.
fn collect(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        if hash && matches!(tokens.peek(), Some(TokenTree::Group(group)) if is_doc(&group.stream())) {
            tokens.next();
            continue;
        }
        if let TokenTree::Group(group) = &token {
            lines.extend([group.span_open().start().line, group.span_close().end().line]);
            collect(group.stream(), lines);
        } else {
            lines.extend(token.span().start().line..=token.span().end().line);
        }
    }
}

/// Whether the brackets of an attribute hold a line of documentation: `doc = "…"`.
fn is_doc(attribute: &TokenStream) -> bool {
    let mut tokens = attribute.clone().into_iter();
    let doc = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "doc");
    doc && matches!(tokens.next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_with_code() {
        let text = "//! A module.\n\n/// Says so.\n#[must_use]\nfn one() -> u32 {\n    // why\n    1\n}\n\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n";
        assert_eq!(lines(text).unwrap(), 4, "the attribute, the head, the value, the end");
        assert_eq!(lines("const TEXT: &str = \"a\n\nb\";\n").unwrap(), 3, "a string of three lines");
        assert_eq!(lines("#[doc(alias = \"x\")]\nfn f() {}\n").unwrap(), 2, "an alias is no text");
    }

    #[test]
    fn files_belong_to_folders_and_crates() {
        let root = Workspace::find().unwrap().root;
        let part = |file: &str| part(&root, file);
        assert_eq!(
            [part("src/lib.rs"), part("src/alloc/plan.rs"), part("src/rpc/server/x.rs")],
            ["src", "src/alloc", SERVER]
        );
        assert_eq!([part("llm/src/main.rs"), part("examples/kernels/src/lib.rs")], ["llm", "examples/kernels"]);
    }
}
