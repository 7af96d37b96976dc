//! Operations, types and their traits beside the library's tables.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{difference, squeezed};

/// What the tables of the library are made of.
const KINDS: &[&str] = &["GGML_OP_", "GGML_UNARY_OP_", "GGML_GLU_OP_", "GGML_PREC_"];

/// The operations, functions and types of the header that the library's sources don't name.
pub(super) fn unnamed(header: &str, source: &str) -> Vec<String> {
    let words = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| c != '_' && !c.is_alphanumeric()).map(str::to_owned).collect()
    };
    // Comments name types that ggml has removed.
    let code: String =
        header.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let named = words(source);
    let ours = |word: &String| KINDS.iter().any(|kind| word.starts_with(kind)) && !word.ends_with("_COUNT");
    words(&code).into_iter().filter(|word| ours(word) && !named.contains(word)).collect()
}

/// The entries `[GGML_TYPE_…] = { … }` of the tables that differ.
pub(super) fn traits(old: &str, new: &str) -> Vec<String> {
    let (old, new) = (entries(old), entries(new));
    let all: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let none = Vec::new();
    let changed = all.into_iter().flat_map(|name| {
        let [old, new] = [&old, &new].map(|entries| entries.get(name).unwrap_or(&none));
        difference(old, new).into_iter().map(move |line| format!("{name}: {line}"))
    });
    changed.collect()
}

fn entries(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut entries = BTreeMap::<String, Vec<String>>::new();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if let Some((name, _)) = line.strip_prefix("[GGML_TYPE_").and_then(|rest| rest.split_once("] = {")) {
            current = Some(format!("GGML_TYPE_{name}"));
        } else if line.starts_with('}') {
            current = None;
        } else if let Some(name) = &current
            && line.starts_with('.')
        {
            entries.entry(name.clone()).or_default().push(squeezed(line));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sources_do_not_name_is_listed() {
        let header = "enum { GGML_OP_ADD, GGML_OP_NEW, // GGML_OP_GONE\n GGML_OP_COUNT, GGML_TYPE_F32 };";
        assert_eq!(unnamed(header, "sys::GGML_OP_ADD GGML_TYPE_F32"), ["GGML_OP_NEW"]);
        assert_eq!(unnamed(header, "GGML_OP_ADD_ID GGML_TYPE_F32"), ["GGML_OP_ADD", "GGML_OP_NEW"], "whole words");
    }

    #[test]
    fn traits_are_compared_by_type() {
        let old = "[GGML_TYPE_A] = {\n .x = 1,\n .y  = f,\n},\n[GGML_TYPE_B] = {\n .x = 2,\n},\n.z = 1,\n";
        let new = "[GGML_TYPE_A] = {\n .y = f,\n .x = 3,\n},\n[GGML_TYPE_B] = {\n .x = 2,\n},\n";
        assert_eq!(traits(old, new), ["GGML_TYPE_A: - .x = 1,", "GGML_TYPE_A: + .x = 3,"]);
    }
}
