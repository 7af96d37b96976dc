//! Links between the pages of this repository.

#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pages() -> Vec<PathBuf> {
    let pages = WalkDir::new(root().join("docs")).into_iter().map(|entry| entry.unwrap().into_path());
    let pages = pages.filter(|path| path.extension().is_some_and(|e| e == "md"));
    pages.chain(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name))).collect()
}

/// A page without code.
fn text(page: &Path) -> String {
    let page = fs::read_to_string(page).unwrap();
    let mut fenced = false;
    let outside = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    let whole: String = outside.flat_map(|line| [line, "\n"]).collect();
    whole.split('`').step_by(2).collect()
}

/// What stands between each `before` and the next `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| Some(rest.split_once(after)?.0)).collect()
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_to_pages_and_headings() {
    let mut checked = 0;
    for page in pages() {
        let text = text(&page);
        let targets = between(&text, "](", ")").into_iter().chain(between(&text, "]: ", "\n"));
        for target in targets.filter(|target| !target.contains("://") && !target.contains(' ')) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(file.exists(), "{}: `{target}` is not there", page.display());
            let there = || {
                fs::read_to_string(&file)
                    .unwrap()
                    .lines()
                    .any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading)
            };
            assert!(heading.is_empty() || there(), "{}: `{target}` has no such heading", page.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} links");
}

/// rustdoc has definitions of all labels; the pages as files need their own.
#[test]
fn labels_of_links_are_defined() {
    let mut checked = 0;
    for page in pages() {
        let text = text(&page);
        let defined: BTreeSet<_> =
            text.lines().filter_map(|line| Some(line.strip_prefix('[')?.split_once("]: ")?.0)).collect();
        let mut used = BTreeSet::new();
        for part in text.split('[').skip(1) {
            let Some((label, rest)) = part.split_once(']') else { continue };
            let is_label = !label.is_empty() && label.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if is_label && !rest.starts_with(['(', ':', '[']) {
                used.insert(label);
            }
        }
        assert_eq!(used, defined, "{}: labels used, and defined at its end", page.display());
        checked += used.len();
    }
    assert!(checked > 20, "{checked} labels");
}
