//! Links in rustdoc's pages: the files and the anchors that they name must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

/// The links of some pages.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) checked: usize,
    /// Each with the page that it is on.
    pub(super) broken: Vec<String>,
}

/// Checks all pages below `folder`. Links to other sites are not followed.
pub(super) fn check(folder: &Path) -> Result<Links> {
    let (mut anchors, mut redirects) = (BTreeMap::new(), BTreeMap::new());
    let mut targets: BTreeMap<(PathBuf, String), PathBuf> = BTreeMap::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let path = entry?.into_path();
        if path.extension().is_none_or(|extension| extension != "html") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // Pages of sources link lines to themselves; rustdoc's own link to an index that no build makes.
        let own = ["src", "help.html", "settings.html"].iter().any(|own| path.starts_with(folder.join(own)));
        if !own {
            for link in values(&text, "href").into_iter().filter(|link| !is_elsewhere(link)) {
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let file = if file.is_empty() { path.clone() } else { resolved(&path, file) };
                targets.entry((file, anchor.to_owned())).or_insert_with(|| path.clone());
            }
        }
        // The page of an item at its private path, which crates that link to it know.
        if let Some((_, to)) = text.split_once("http-equiv=\"refresh\" content=\"0;URL=") {
            redirects.insert(path.clone(), resolved(&path, to.split('"').next().unwrap_or_default()));
        }
        anchors.insert(path, values(&text, "id").into_iter().map(str::to_owned).collect::<BTreeSet<_>>());
    }
    let mut links = Links::default();
    for ((file, anchor), page) in targets {
        links.checked += 1;
        // Lines of sources are marked by a script: `#3-7`.
        let lines = anchor.chars().all(|c| c.is_ascii_digit() || c == '-');
        let at = redirects.get(&file).unwrap_or(&file);
        let there = lines || anchors.get(at).is_none_or(|anchors| anchors.contains(&anchor));
        if !at.is_file() || !there {
            let shown = |path: &Path| path.strip_prefix(folder).unwrap_or(path).display().to_string();
            links.broken.push(format!("{}: {}#{anchor}", shown(&page), shown(&file)));
        }
    }
    Ok(links)
}

/// Another site's, or a path of items that another crate's comments name and rustdoc can't resolve here: a blanket
/// implementation brings its trait's. Rustdoc's lints refuse such paths in comments of this workspace.
fn is_elsewhere(link: &str) -> bool {
    link.contains("://")
        || link.contains("::")
        || link.starts_with("mailto:")
        || link.starts_with("javascript:")
        || link.starts_with("data:")
}

/// The values of an attribute, quoted or not. In text, where quotes are escaped, it is no attribute.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let value = |part: &'a str| match part.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => part.split([' ', '>']).next().filter(|value| !value.starts_with('&')),
    };
    html.split(&format!(" {attribute}=")).skip(1).filter_map(value).collect()
}

/// The path of `link` on `page`, without `..`.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(page).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_need_a_file_and_an_anchor() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        write(
            "a/index.html",
            "<h1 id=\"top\"><p id=x><a class=\"q\" href=\"../b.html#here\"> <a href=\"https://no.where\"> <a href=\"no::Where\">",
        );
        write("b.html", "<i id=\"here\"><a href=\"a/index.html#x\"><a href=\"#here\"> text &lt;a href=&quot;c&quot;");
        let links = check(folder.path()).unwrap();
        assert_eq!((links.checked, links.broken.len()), (2, 0), "{links:?}");
        write("c.html", "<meta http-equiv=\"refresh\" content=\"0;URL=a/index.html\">");
        write("b.html", "<i id=here><a href=\"c.html#top\">");
        assert_eq!(check(folder.path()).unwrap().broken, [""; 0]);
        write("b.html", "<a href=\"a/index.html#y\"> <a href=\"d.html\"> <a href=\"c.html#z\">");
        let broken = check(folder.path()).unwrap().broken;
        assert_eq!(
            broken,
            ["b.html: a/index.html#y", "a/index.html: b.html#here", "b.html: c.html#z", "b.html: d.html#"]
        );
    }
}
