//! Whether the table has all builders that the crate has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::ops;

/// The names of all methods in `src/ops` that make a tensor, without those that are unsafe.
fn builders() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                collect(&fs::read_to_string(path).unwrap(), &mut names);
            }
        }
    }
    #[cfg(not(ggml_0_28))]
    names.remove("top_k_mask");
    names
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn collect(source: &str, names: &mut BTreeSet<String>) {
    for (_, rest) in source.match_indices(" pub fn ").map(|(at, found)| source.split_at(at + found.len())) {
        let name: String = rest.chars().take_while(|&c| is_name(c)).collect();
        let signature = rest.split('{').next().unwrap();
        if !name.is_empty() && signature.contains("self") && signature.contains("Result<Tensor<") {
            names.insert(name);
        }
    }
    // Lines of tables, of which macros make methods.
    for (at, _) in source.match_indices(" = ggml_") {
        let (before, after) = source.split_at(at);
        let is_line = after.trim_start_matches([' ', '=']).trim_start_matches(is_name).starts_with(", \"ggml_");
        if is_line {
            names.insert(before.rsplit(|c| !is_name(c)).next().unwrap().to_owned());
        }
    }
}

#[test]
fn every_builder_is_in_the_table() {
    let table: BTreeSet<_> = ops::all().iter().map(|op| op.name.to_owned()).collect();
    let builders = builders();
    assert!(builders.len() > 60, "too few builders are found: {builders:?}");
    let missing: Vec<_> = builders.difference(&table).collect();
    assert!(missing.is_empty(), "not in testkit/src/cases, nor in tests/abuse/ops: {missing:?}");
    let gone: Vec<_> = table.difference(&builders).collect();
    assert!(gone.is_empty(), "in the table, but not found in src/ops: {gone:?}");
    let rows = ops::table().iter().flat_map(|row| [Some(row.name), row.in_place.as_ref().map(|(name, _)| *name)]);
    let rows: BTreeSet<_> = rows.flatten().map(str::to_owned).collect();
    let missing: Vec<_> = builders.difference(&rows).filter(|name| !name.contains("custom")).collect();
    assert!(missing.is_empty(), "not in testkit/src/cases: {missing:?}");
    let gone: Vec<_> = rows.difference(&builders).collect();
    assert!(gone.is_empty(), "in testkit/src/cases, but not found in src/ops: {gone:?}");
    assert_eq!(table.len(), ops::all().len(), "an operation is in the table twice");
}
