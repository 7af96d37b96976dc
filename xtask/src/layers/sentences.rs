//! ARCHITECTURE.md's rules for single files: who frees C objects, and who accesses fields of C tensors.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use super::source::Source;

/// The fields of a C tensor, except for `type`, `op` and `data`, which other structs have as well.
const FIELDS: [&str; 12] =
    ["ne", "nb", "src", "op_params", "flags", "view_src", "view_offs", "buffer", "extra", "padding", "type_", "name"];

/// The rules that a file breaks.
pub(super) fn broken(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    walk(&source.tokens, &mut |before, tokens| {
        if let Some(what) = frees(tokens).filter(|_| !source.file.ends_with("/raw.rs")) {
            found.push(format!("{}: {what} is called outside of a raw.rs", source.file));
        }
        if source.module != "header" && touches(before, tokens) {
            found.push(format!("{}: the fields of a C tensor are header/'s alone", source.file));
        }
    });
    found.dedup();
    found
}

/// Calls `see` for each position of a token stream, groups included, with the token before it and those that follow.
fn walk(tokens: &TokenStream, see: &mut impl FnMut(Option<&TokenTree>, &[TokenTree])) {
    let tokens: Vec<_> = tokens.clone().into_iter().collect();
    for i in 0..tokens.len() {
        let before = i.checked_sub(1).and_then(|i| tokens.get(i));
        see(before, tokens.get(i..).unwrap_or_default());
        if let Some(TokenTree::Group(group)) = tokens.get(i) {
            walk(&group.stream(), see);
        }
    }
}

/// The C function that frees something, if the tokens start with one.
fn frees(tokens: &[TokenTree]) -> Option<String> {
    let [TokenTree::Ident(sys), TokenTree::Punct(_), TokenTree::Punct(_), TokenTree::Ident(name), ..] = tokens else {
        return None;
    };
    let name = name.to_string();
    (sys == "sys" && name.ends_with("_free")).then_some(name)
}

/// Whether a tensor is created or borrowed here, or a field of one is accessed. A tensor behind a raw pointer can't be
/// accessed in other ways.
fn touches(before: Option<&TokenTree>, tokens: &[TokenTree]) -> bool {
    let is = |name: &str| matches!(before, Some(TokenTree::Ident(word)) if word == name);
    match tokens {
        [TokenTree::Punct(and), TokenTree::Ident(word), rest @ ..] if and.as_char() == '&' && word == "mut" => {
            is_tensor(rest).is_some()
        }
        [TokenTree::Punct(and), rest @ ..] if and.as_char() == '&' => is_tensor(rest).is_some(),
        // `*mut sys::ggml_tensor {` is a function's result type and body.
        [TokenTree::Ident(_), ..] if !is("mut") && !is("const") && is_tensor(tokens).is_some() => {
            matches!(is_tensor(tokens), Some([TokenTree::Group(body), ..]) if body.delimiter() == Delimiter::Brace)
        }
        // `(*t).ne`
        [TokenTree::Group(deref), TokenTree::Punct(dot), TokenTree::Ident(field), rest @ ..]
            if dot.as_char() == '.' =>
        {
            let star = matches!(deref.stream().into_iter().next(), Some(TokenTree::Punct(p)) if p.as_char() == '*');
            star && is_field(field, rest)
        }
        // `made.raw.ne`
        [TokenTree::Punct(a), TokenTree::Ident(raw), TokenTree::Punct(b), TokenTree::Ident(field), rest @ ..] => {
            a.as_char() == '.' && raw == "raw" && b.as_char() == '.' && is_field(field, rest)
        }
        _ => false,
    }
}

/// The tokens after the type of C tensors, if they start with it.
fn is_tensor(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    let [TokenTree::Ident(sys), TokenTree::Punct(_), TokenTree::Punct(_), TokenTree::Ident(name), rest @ ..] = tokens
    else {
        return None;
    };
    (sys == "sys" && name == "ggml_tensor").then_some(rest)
}

/// Whether the name is a field instead of a method.
fn is_field(name: &Ident, rest: &[TokenTree]) -> bool {
    let call = matches!(rest, [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Parenthesis);
    !call && FIELDS.iter().any(|field| name == field)
}
