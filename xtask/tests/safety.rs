//! Checks docs/safety.md against the code: every hazard has one row, the files and tests that it names exist, and every
//! unsafe function is listed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_assert_message, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The number of hazards. Adding or removing a row must change this.
const HAZARDS: usize = 152;

/// The number of hazards without a test, whose proof is that somebody read the code. Each row gives the reason.
const BY_READING: usize = 5;

/// The table of what programs broke.
const ATTACK: &str = "Found by attack (letters a to z)";

/// The table of what a GPU showed.
const GPU: &str = "Found on a GPU";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All Rust code in a folder of the repository, comments included.
fn whole(folder: &str) -> String {
    let files = walkdir::WalkDir::new(root().join(folder)).into_iter().map(Result::unwrap);
    let text: String = files
        .filter(|f| f.path().extension().is_some_and(|e| e == "rs"))
        .map(|f| fs::read_to_string(f.path()).unwrap())
        .collect();
    assert!(!text.is_empty(), "no Rust in {folder}");
    text
}

/// All Rust code in a folder of the repository, without comments.
fn rust(folder: &str) -> String {
    let whole = whole(folder);
    whole.lines().filter(|l| !l.trim_start().starts_with("//")).flat_map(|l| [l, "\n"]).collect()
}

fn document() -> String {
    fs::read_to_string(root().join("docs/safety.md")).unwrap()
}

/// The cells of all tables under a heading of docs/safety.md, subheadings included.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = document();
    let (_, after) = text.split_once(&format!("## {heading}\n")).unwrap();
    let (section, _) = after.split_once("\n## ").unwrap_or((after, ""));
    let lines: Vec<_> = section.lines().collect();
    let is_head = |i: usize| lines.get(i + 1).is_some_and(|next| next.starts_with("|---"));
    let rows = lines.iter().enumerate().filter(|(i, l)| l.starts_with('|') && !l.starts_with("|---") && !is_head(*i));
    rows.map(|(_, row)| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The texts in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The names of the tests in Rust code without comments: test functions that are not ignored, and names in lists of
/// trials.
fn tests_in(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut marked, mut ignored, mut listed) = (false, false, false);
    for line in text.lines().map(str::trim) {
        if listed {
            listed = line != "}" && line != ");";
            names.extend(line.strip_suffix(',').map(str::to_owned));
        } else if line.ends_with("trials! {") || line.ends_with("trials!(") {
            listed = true;
        } else if line.starts_with("#[") {
            marked |= line == "#[test]";
            ignored |= line.starts_with("#[ignore");
        } else {
            if let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('('))
                && marked
                && !ignored
            {
                names.insert(name.to_owned());
            }
            (marked, ignored) = (false, false);
        }
    }
    names
}

/// The code that rows are checked against.
struct Code {
    tests: BTreeSet<String>,
    source: String,
}

impl Code {
    fn read() -> Self {
        let source = ["src", "ggml-gguf/src", "ggml-draw/src"].map(rust).concat();
        let others = ["tests", "examples", "ggml-sys/tests", "ggml-gguf/tests"].map(rust).concat();
        let tests = tests_in(&(others + &source));
        assert!(tests.len() > 500, "too few tests are found: {}", tests.len());
        Self { tests, source }
    }

    /// Checks a cell: a path is below `src` or the root; any other quoted name must occur in the source.
    fn check_closed_by(&self, number: &str, closed: &str) {
        let there = |path: &str| root().join("src").join(path).exists() || root().join(path).exists();
        let is_path = |name: &str| name.contains('/') || Path::new(name).extension().is_some_and(|e| e == "rs");
        for name in quoted(closed).filter(|name| !there(name)) {
            assert!(!is_path(name), "{number}: there is no file {name}");
            let last = name.rsplit("::").next().unwrap();
            assert!(self.source.contains(last), "{number}: the source does not have {name}");
        }
        assert!(quoted(closed).any(there), "{number}: no file closes it");
    }

    /// Checks a proof: tests and/or `no call of` functions, or `by reading:` a reason. Returns whether it is the last.
    fn check_proof(&self, number: &str, proof: &str) -> bool {
        if let Some((before, reason)) = proof.split_once("by reading: ") {
            assert!(before.is_empty() && !reason.is_empty(), "{number}: what is read needs a reason, and nothing else");
            return true;
        }
        let (named, uncalled) = proof.split_once("no call of ").unwrap_or((proof, ""));
        assert!(quoted(proof).next().is_some(), "{number} has no proof: {proof}");
        for name in quoted(named) {
            let exists = match name.strip_prefix("ui/") {
                Some(file) => root().join("tests/ui").join(file).is_file(),
                None => self.tests.contains(name),
            };
            assert!(exists, "{number}: there is no test {name}");
        }
        for name in quoted(uncalled) {
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let called = self.source.split(&format!("sys::{name}")).skip(1).any(ends);
            let looked_up = self.source.contains(&format!("c\"{name}\""));
            assert!(!called && !looked_up, "{number}: src calls {name}");
        }
        false
    }

    /// Checks a row. Returns whether its proof is by reading.
    fn check(&self, row: &[String]) -> bool {
        let [number, what, closed, proof] = row else { panic!("four cells: {row:?}") };
        assert!(what.ends_with('.'), "{number}: sentences end with a full stop: {what}");
        self.check_closed_by(number, closed);
        self.check_proof(number, proof)
    }
}

#[test]
fn hazards_have_one_row_and_a_proof() {
    let rows = table("Hazards");
    let numbers: Vec<_> = rows.iter().map(|row| row.first().unwrap().clone()).collect();
    assert_eq!(numbers, (1..=HAZARDS).map(|n| format!("H{n}")).collect::<Vec<_>>(), "one row each, in order");
    let code = Code::read();
    let read: Vec<_> = rows.iter().filter(|row| code.check(row)).map(|row| row.first().unwrap()).collect();
    assert_eq!(read.len(), BY_READING, "the rows without a test: {read:?}");
}

#[test]
fn attack_findings_have_a_proof() {
    let rows = table(ATTACK);
    let numbers: Vec<_> = rows.iter().map(|row| row.first().unwrap().clone()).collect();
    let expected: Vec<_> = ('a'..='z').zip(HAZARDS + 1..).map(|(letter, n)| format!("H{n} ({letter})")).collect();
    assert_eq!(numbers, expected, "one row each, in order");
    let code = Code::read();
    for row in &rows {
        let [number, _, closed, _] = row.as_slice() else { panic!("four cells: {row:?}") };
        code.check_closed_by(number, closed);
    }
    let open: Vec<_> = rows.iter().flatten().filter(|cell| cell.contains("TODO-")).collect();
    assert!(open.is_empty(), "without a proof: {open:?}");
    for row in &rows {
        assert!(!code.check(row), "what a program broke has a test: {row:?}");
    }
}

#[test]
fn findings_on_a_gpu_have_a_proof() {
    let rows = table(GPU);
    let first = table("Hazards").len() + table(ATTACK).len() + 1;
    let numbers: Vec<_> = rows.iter().map(|row| row.first().unwrap().clone()).collect();
    assert_eq!(
        numbers,
        (first..first + rows.len()).map(|n| format!("H{n}")).collect::<Vec<_>>(),
        "one row each, in order"
    );
    let code = Code::read();
    assert!(!rows.is_empty() && !rows.iter().any(|row| code.check(row)), "each has a test");
}

/// The hazard numbers in a text, such as 12 in "H12".
fn cited(text: &str) -> BTreeSet<usize> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter_map(|word| word.strip_prefix('H')?.parse().ok()).collect()
}

#[test]
fn hazard_numbers_in_code_have_rows() {
    let there = [table("Hazards"), table(ATTACK), table(GPU)].iter().map(Vec::len).sum();
    let code = whole("src") + &whole("tests") + &whole("ggml-sys/src") + &whole("ggml-sys/build");
    let cited = cited(&code);
    assert!(cited.len() > 20, "too few are found: {cited:?}");
    assert!(cited.iter().all(|n| (1..=there).contains(n)), "there are {there} hazards: {cited:?}");
}

/// Checks tests named `h01_…`, which attempt a hazard.
#[test]
fn hazard_tests_are_named_by_rows() {
    let text = document();
    for name in Code::read().tests {
        let number = name.strip_prefix('h').and_then(|rest| rest.split_once('_')).map(|(number, _)| number);
        if let Some(number) = number.filter(|n| n.len() > 1 && n.bytes().all(|b| b.is_ascii_digit())) {
            assert!(text.contains(&format!("`{name}`")), "no row names {name}");
            let number: usize = number.parse().unwrap();
            assert!(text.contains(&format!("\n| H{number} ")), "{name}: there is no H{number}");
        }
    }
}

#[test]
fn tests_named_in_other_tables_exist() {
    let text = document();
    let tests = Code::read().tests;
    // "`tests/ops` `name`"
    for (_, after) in text.match_indices("`tests/").map(|(at, _)| text.split_at(at)) {
        let mut parts = after.split('`').skip(1);
        let (folder, between, name) = (parts.next().unwrap(), parts.next(), parts.next());
        assert!(root().join(folder).exists(), "there is no {folder}");
        // Otherwise the whole file is named.
        if let (Some(" "), Some(name)) = (between, name) {
            assert!(tests.contains(name), "there is no test {name}");
        }
    }
}

#[test]
fn unsafe_functions_are_listed() {
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
