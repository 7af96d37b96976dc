//! Names of code in pages: `` `symbol` (`file`) `` says where something is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::html::Links;

/// Checks that the files named in parentheses exist, and that each has the symbol before the parenthesis, if there is one.
pub(super) fn check(root: &Path, pages: &[PathBuf]) -> Result<Links> {
    let mut links = Links::default();
    for page in pages {
        let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
        for (symbol, files) in places(&text) {
            links.checked += 1;
            let found: Vec<_> = files.iter().filter_map(|file| find(root, file)).collect();
            if found.len() < files.len() {
                links.broken.push(format!("{}: one of these files is not there: {}", page.display(), files.join(", ")));
            } else if let Some(symbol) = symbol.filter(|symbol| !found.iter().any(|file| has(file, symbol))) {
                links.broken.push(format!("{}: `{symbol}` is not in {}", page.display(), files.join(", ")));
            }
        }
    }
    Ok(links)
}

/// The files that stand in parentheses, each list with the symbol right before it.
fn places(text: &str) -> Vec<(Option<&str>, Vec<&str>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("(`") {
        let Some((inside, _)) = text.get(at + 1..).and_then(|rest| rest.split_once(')')) else { continue };
        let files: Vec<_> = inside.split('`').skip(1).step_by(2).filter(|name| is_file(name)).collect();
        if files.is_empty() {
            continue;
        }
        let before = text.get(..at).unwrap_or_default().trim_end().trim_end_matches("**");
        let symbol = before.strip_suffix('`').and_then(|rest| rest.rsplit('`').next());
        found.push((symbol.and_then(last_name), files));
    }
    found
}

fn is_file(name: &str) -> bool {
    let extension = Path::new(name).extension();
    name.contains('/') && name.ends_with('/')
        || extension.is_some_and(|e| ["rs", "toml", "cpp", "txt"].iter().any(|x| e == *x))
}

/// The last name of a path such as `Run::compute`; none of code such as `a + b`.
fn last_name(symbol: &str) -> Option<&str> {
    let name = symbol.rsplit("::").next()?.trim_end_matches("()");
    name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
}

/// A file or folder by its path in the repository or in the library.
fn find(root: &Path, file: &str) -> Option<PathBuf> {
    [root.join(file), root.join("src").join(file)].into_iter().find(|path| path.exists())
}

/// Whether a file has a name.
fn has(path: &Path, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    path.is_dir() || fs::read_to_string(path).is_ok_and(|text| text.split(|c| !is_part(c)).any(|word| word == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_with_their_files() {
        let text = "**`Run::compute`** (`run/mod.rs`) is `a + b` (`x.rs`, `y/z.rs`), (`tests/`) and `f` (slow).";
        let expected = [(Some("compute"), vec!["run/mod.rs"]), (None, vec!["x.rs", "y/z.rs"]), (None, vec!["tests/"])];
        assert_eq!(places(text), expected);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let broken = |text: &str| {
            let page = std::env::temp_dir().join(format!("symbols-{}.md", std::process::id()));
            fs::write(&page, text).unwrap();
            let links = check(root, std::slice::from_ref(&page)).unwrap();
            fs::remove_file(page).unwrap();
            (links.checked, links.broken.len())
        };
        assert_eq!(broken("`Graph` (`graph/mod.rs`), `Missing` (`graph/mod.rs`), what (`graph/nothing.rs`)"), (3, 2));
    }
}
