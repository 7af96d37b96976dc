//! Holds docs/safety.md against the code: every hazard has one row, every proof that it names exists, and every unsafe
//! function is listed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_assert_message, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All Rust in a folder of the repository, without comments.
fn rust(folder: &str) -> String {
    let files = walkdir::WalkDir::new(root().join(folder)).into_iter().map(Result::unwrap);
    let mut text = String::new();
    for file in files.filter(|f| f.path().extension().is_some_and(|e| e == "rs")) {
        let source = fs::read_to_string(file.path()).unwrap();
        text.extend(source.lines().filter(|l| !l.trim_start().starts_with("//")).flat_map(|l| [l, "\n"]));
    }
    assert!(!text.is_empty(), "no Rust in {folder}");
    text
}

/// The cells of the table under a heading of docs/safety.md.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("docs/safety.md")).unwrap();
    let (_, after) = text.split_once(&format!("## {heading}\n")).unwrap();
    let rows = after.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_hazard_has_one_row_and_a_proof() {
    let rows = table("Hazards");
    let numbers: Vec<_> = rows.iter().map(|row| row.first().unwrap().clone()).collect();
    assert_eq!(numbers, (1..=36).map(|n| format!("H{n}")).collect::<Vec<_>>(), "one row each, in order");
    let tests = rust("tests") + &rust("src") + &rust("ggml-sys/tests");
    let calls = rust("src");
    for row in rows {
        let [number, _, _, proof] = row.as_slice() else { panic!("four cells: {row:?}") };
        let (named, uncalled) = proof.split_once("no call of ").unwrap_or((proof, ""));
        assert!(quoted(proof).next().is_some(), "{number} has no proof");
        for name in quoted(named) {
            let exists = match name.strip_prefix("ui/") {
                Some(file) => root().join("tests/ui").join(file).is_file(),
                None => tests.contains(&format!("fn {name}() {{")) || tests.contains(&format!("fn {name}(\n")),
            };
            assert!(exists, "{number}: there is no test {name}");
        }
        for name in quoted(uncalled) {
            let called = calls.contains(&format!("sys::{name}")) || calls.contains(&format!("c\"{name}\""));
            assert!(!called, "{number}: src calls {name}");
        }
    }
}

#[test]
fn tests_that_other_tables_name_exist() {
    let text = fs::read_to_string(root().join("docs/safety.md")).unwrap();
    let tests = rust("tests");
    // "`tests/ops` `name`"
    for (_, after) in text.match_indices("`tests/").map(|(at, _)| text.split_at(at)) {
        let mut parts = after.split('`').skip(1);
        let (folder, between, name) = (parts.next().unwrap(), parts.next(), parts.next());
        assert!(root().join(folder).exists(), "there is no {folder}");
        // Else it is the whole file that is named.
        if let (Some(" "), Some(name)) = (between, name) {
            assert!(tests.contains(&format!("fn {name}() {{")), "there is no test {name}");
        }
    }
}

#[test]
fn every_unsafe_function_is_listed() {
    let source = rust("src");
    let there: BTreeSet<_> = source
        .match_indices("pub unsafe fn ")
        .map(|(at, found)| source.split_at(at + found.len()).1)
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        .collect();
    let listed: BTreeSet<_> = table("Unsafe functions")
        .iter()
        .flat_map(|row| quoted(row.first().unwrap()))
        .map(|name| name.rsplit("::").next().unwrap().to_owned())
        .collect();
    assert!(there.len() > 3, "too few are found: {there:?}");
    assert_eq!(there, listed);
}
