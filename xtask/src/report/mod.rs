//! What changed between two versions of ggml's sources that the safe layer may depend on: the reading list of a move.

mod lines;
mod protocol;
mod tables;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

/// The files whose assertions are compared: what this crate builds and was tested with.
const CODE: &[&str] = &["src", "src/ggml-cpu", "src/ggml-rpc", "src/ggml-blas", "src/ggml-vulkan", "src/ggml-cuda"];

/// The report on two trees, without the declarations, which `headers` compares.
pub(crate) fn write(root: &Path, old: &Path, new: &Path) -> Result<String> {
    let mut text = String::new();
    let mut section = |title: &str, lines: &[String]| {
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "{title}: {}", lines.len());
        for line in lines {
            let _infallible = writeln!(text, "  {line}");
        }
    };
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let headers = files(old, new, &["include"])?;
    section("comments of public headers", &changes(&headers, old, new, lines::comments)?);
    let code = files(old, new, CODE)?;
    section("assertions and aborts", &changes(&code, old, new, lines::assertions)?);
    let source = library(root)?;
    section("constants that src/ does not name", &tables::unnamed(&read(&new.join("include/ggml.h"))?, &source));
    for file in ["src/ggml.c", "src/ggml-cpu/ggml-cpu.c"] {
        let (old, new) = (read(&old.join(file))?, read(&new.join(file))?);
        section(&format!("traits of types in {file}"), &tables::traits(&old, &new));
    }
    let rpc = "src/ggml-rpc/ggml-rpc.cpp";
    let wire = read(&root.join("src/rpc/wire.rs"))?;
    section("RPC messages", &protocol::compare(&read(&old.join(rpc))?, &read(&new.join(rpc))?, &wire));
    let changed: BTreeSet<_> =
        code.iter().chain(&headers).filter(|file| !same(old, new, file)).map(|file| name(file)).collect();
    section("rows of docs/safety.md that name a changed file", &rows(&read(&root.join("docs/safety.md"))?, &changed));
    section("changed files", &changed.into_iter().map(str::to_owned).collect::<Vec<_>>());
    Ok(text)
}

fn name(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(_, name)| name)
}

fn same(old: &Path, new: &Path, file: &str) -> bool {
    fs::read(old.join(file)).ok() == fs::read(new.join(file)).ok()
}

/// The C files directly in these folders of either tree, relative to it.
fn files(old: &Path, new: &Path, folders: &[&str]) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    for (tree, folder) in [old, new].into_iter().flat_map(|tree| folders.iter().map(move |folder| (tree, *folder))) {
        for entry in WalkDir::new(tree.join(folder)).min_depth(1).max_depth(1) {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if [".c", ".h", ".cpp", ".cu", ".cuh"].iter().any(|end| name.ends_with(end)) {
                files.insert(format!("{folder}/{name}"));
            }
        }
    }
    Ok(files)
}

/// What was added to and removed from the lines that `pick` takes, by file.
fn changes(
    files: &BTreeSet<String>,
    old: &Path,
    new: &Path,
    pick: impl Fn(&str) -> Vec<String>,
) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for file in files {
        let of = |tree: &Path| match fs::read_to_string(tree.join(file)) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            text => text.map(|text| pick(&text)).with_context(|| format!("cannot read {file}")),
        };
        let changed = lines::difference(&of(old)?, &of(new)?);
        all.extend(changed.into_iter().map(|line| format!("{file}: {line}")));
    }
    Ok(all)
}

/// The library's sources.
fn library(root: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in WalkDir::new(root.join("src")).sort_by_file_name() {
        let entry = entry?;
        if entry.path().extension().is_some_and(|e| e == "rs") {
            text += &fs::read_to_string(entry.path())?;
        }
    }
    Ok(text)
}

/// The first cells of the rows of docs/safety.md that name one of these files.
fn rows(page: &str, files: &BTreeSet<&str>) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let named = rows.filter_map(|row| {
        let of: Vec<_> = row.split('`').filter(|quoted| files.contains(name(quoted))).collect();
        Some(format!("{}: {}", row.trim_matches('|').split('|').next()?.trim(), of.join(", ")))
            .filter(|_| !of.is_empty())
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_the_files_they_name() {
        let page = "| # | what |\n|---|---|\n| H1 | `ggml-alloc.c` asserts |\n| H2 | `src/ggml.c` and `ops.cpp` |\n| H3 | x |\n";
        assert_eq!(rows(page, &["ggml.c", "ops.cpp"].into()), ["H2: src/ggml.c, ops.cpp"]);
    }

    #[test]
    fn a_tree_beside_itself_differs_in_nothing() {
        let root = crate::workspace::Workspace::find().unwrap().root;
        let tree = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("include/ggml.h", "enum ggml_op { GGML_OP_ADD, };"),
            ("src/ggml.c", "GGML_ASSERT(x);"),
            ("src/ggml-cpu/ggml-cpu.c", ""),
            ("src/ggml-rpc/ggml-rpc.cpp", "enum rpc_cmd { RPC_CMD_ALLOC_BUFFER = 0, };"),
        ] {
            fs::create_dir_all(tree.path().join(file).parent().unwrap()).unwrap();
            fs::write(tree.path().join(file), text).unwrap();
        }
        for folder in CODE {
            fs::create_dir_all(tree.path().join(folder)).unwrap();
        }
        let text = write(&root, tree.path(), tree.path()).unwrap();
        assert!(text.lines().all(|line| line.ends_with(": 0")), "{text}");
    }
}
