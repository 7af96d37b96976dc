//! Links between the Markdown pages of this repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

use super::html::Links;

/// The pages of the repository.
pub(super) fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = files(&root.join("docs"))?;
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    Ok(pages)
}

/// The Markdown files in a folder and below.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let path = entry?.into_path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Checks that links lead to files and headings, and that labels are defined where they are used.
pub(super) fn check(pages: &[PathBuf]) -> Result<Links> {
    let mut links = Links::default();
    for page in pages {
        let text = text(&read(page)?);
        let targets = between(&text, "](", ")").chain(between(&text, "]: ", "\n"));
        for target in targets.filter(|target| !target.contains("://") && !target.contains(' ')) {
            links.checked += 1;
            if !leads_somewhere(page, target)? {
                links.broken.push(format!("{}: {target}", page.display()));
            }
        }
        for label in labels(&text) {
            links.broken.push(format!("{}: the label [{label}] is not used, or not defined", page.display()));
        }
    }
    Ok(links)
}

fn leads_somewhere(page: &Path, target: &str) -> Result<bool> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page.to_owned() } else { page.parent().unwrap_or(page).join(file) };
    if heading.is_empty() || !file.exists() {
        return Ok(file.exists());
    }
    let is = |line: &str| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading;
    Ok(read(&file)?.lines().any(is))
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))
}

/// A page without code.
fn text(page: &str) -> String {
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
fn between<'a>(text: &'a str, before: &'a str, after: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |rest| Some(rest.split_once(after)?.0))
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Labels that are used and not defined, or defined and not used. rustdoc has definitions of all labels; the pages as
/// files need their own.
fn labels(text: &str) -> Vec<&str> {
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
    used.symmetric_difference(&defined).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn links_of_the_repository_lead_to_pages_and_headings() {
        let links = check(&pages(&Workspace::find().unwrap().root).unwrap()).unwrap();
        assert_eq!(links.broken, [""; 0]);
        assert!(links.checked > 50, "{links:?}");
    }

    #[test]
    fn broken_links_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        fs::write(&page, "# A title\n[x](#a-title) [y](#no) `[z](no.md)` [l] [m](no.md)\n\n[k]: page.md\n").unwrap();
        let links = check(&[page]).unwrap();
        let broken: Vec<_> = links.broken.iter().map(|b| b.split_once("page.md: ").unwrap().1).collect();
        let label = |name| format!("the label [{name}] is not used, or not defined");
        assert_eq!(broken, ["#no".to_owned(), "no.md".to_owned(), label("k"), label("l")]);
        assert_eq!(links.checked, 4);
    }
}
