//! `cargo xtask layers`: checks all crates against ARCHITECTURE.md: their layers, the names of their types, and the library's
//! rules for single files.

mod cycles;
mod sentences;
mod source;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::Workspace;
use source::Source;
pub(crate) use source::is_test;
use table::Table;

/// The library's folder.
const LIBRARY: &str = "src";

/// A crate of so few modules needs no row.
const FEW: usize = 2;

/// What is wrong with one crate, or all.
#[derive(Debug, Default)]
struct Findings {
    crates: usize,
    files: usize,
    /// The modules of higher layers that a file imports.
    upward: Vec<String>,
    /// The modules that use each other.
    cycles: Vec<String>,
    /// The types of one crate that have one name.
    names_twice: Vec<String>,
    /// Other rules that are broken.
    broken: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run() -> Result<()> {
    let found = find(&Workspace::find()?)?;
    let Findings { crates, files, upward, cycles, names_twice, .. } = &found;
    let [upward, cycles, twice] = [upward, cycles, names_twice].map(Vec::len);
    println!("layers: crates={crates} files={files} upward={upward} cycles={cycles} names_twice={twice}");
    let wrong = found.all();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn find(workspace: &Workspace) -> Result<Findings> {
    let root = &workspace.root;
    let path = root.join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut tables = table::parse(&text)?;
    let mut found = Findings::default();
    for (folder, files) in crates(&workspace.files("*.rs")?) {
        let sources = source::read_all(root, &folder, &files)?;
        found.add(Findings::of(&folder, tables.remove(&folder), &sources)?);
    }
    found
        .broken
        .extend(tables.into_keys().map(|folder| format!("ARCHITECTURE.md has a row for {folder}: there is none")));
    Ok(found)
}

/// The files of each crate by the folder of its root, without tests and benchmarks.
fn crates(files: &[String]) -> BTreeMap<String, Vec<String>> {
    let is_test = |part: &str| matches!(part, "tests" | "tests.rs" | "benches");
    let files: Vec<_> = files.iter().filter(|file| !file.split('/').any(is_test)).collect();
    let root = |file: &str| {
        let (folder, name) = file.rsplit_once('/')?;
        matches!(name, "lib.rs" | "main.rs").then(|| folder.to_owned())
    };
    let roots: BTreeSet<String> = files.iter().filter_map(|file| root(file)).collect();
    let mut crates: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let above = Path::new(file).ancestors().skip(1).find_map(|folder| roots.get(folder.to_str()?));
        if let Some(folder) = above {
            crates.entry(folder.clone()).or_default().push(file.clone());
        }
    }
    crates
}

impl Findings {
    fn of(folder: &str, table: Option<Table>, sources: &[Source]) -> Result<Self> {
        let modules: BTreeSet<&str> = sources.iter().map(|s| &*s.module).filter(|m| !source::is_root(m)).collect();
        let root = if sources.iter().any(|s| s.module == "lib") { "lib" } else { "main" };
        let exports = source::exports(sources);
        let has_row = table.is_some();
        let table = table.unwrap_or_default();
        // What another crate exports by the root is none of this one's modules.
        let resolve = |name: &str| match exports.get(name) {
            _ if modules.contains(name) => Some(name.to_owned()),
            Some(to) => (modules.contains(&**to) || table.layer(to).is_ok()).then(|| to.clone()),
            None => Some(root.to_owned()),
        };
        let mut found = Self { crates: 1, files: sources.len(), ..Self::default() };
        if !has_row && modules.len() > FEW {
            found.broken.push(format!("ARCHITECTURE.md has no row for the {} modules of {folder}", modules.len()));
        }
        if has_row && folder != LIBRARY {
            found
                .broken
                .extend(table.missing(&modules).map(|m| format!("ARCHITECTURE.md: {folder} has no module {m}")));
        }
        let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for source in sources {
            let own = if has_row { table.layer(&source.module)? } else { 0 };
            for used in source.uses.iter().filter_map(|name| resolve(name)).filter(|used| *used != source.module) {
                let above = if has_row { table.layer(&used)? > own } else { source::is_root(&used) };
                if above {
                    found.upward.push(format!("{} uses {used}, which is above it (ARCHITECTURE.md)", source.file));
                }
                uses.entry(&source.module).or_default().insert(used);
            }
            if folder == LIBRARY {
                found.broken.extend(sentences::broken(source));
            }
        }
        let circles = cycles::find(&uses).into_iter();
        found.cycles.extend(circles.map(|all| format!("{folder}: these use each other: {}", all.join(", "))));
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for source in sources {
            source.types.iter().for_each(|name| files.entry(name).or_default().push(&source.file));
        }
        let twice = files.into_iter().filter(|(_, files)| files.len() > 1);
        found
            .names_twice
            .extend(twice.map(|(name, files)| format!("types with one name, {name}: {}", files.join(", "))));
        Ok(found)
    }

    fn add(&mut self, other: Self) {
        self.crates += other.crates;
        self.files += other.files;
        self.upward.extend(other.upward);
        self.cycles.extend(other.cycles);
        self.names_twice.extend(other.names_twice);
        self.broken.extend(other.broken);
    }

    fn all(&self) -> Vec<String> {
        [&self.upward, &self.cycles, &self.names_twice, &self.broken].into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "## Layers\n\n| | |\n|---|---|\n| `ggml-sys` | C |\n| `error` `ffi` | low |\n| `header/` | mid |\n\
        | `ops/` | high |\n\n### Layers of the other crates\n\n| | |\n|---|---|\n\
        | `tool/src` | `low` < `high` `higher` |\n\n## Next\n";

    fn findings(folder: &str, files: &[(&str, &str)]) -> Findings {
        let sources: Vec<_> = files.iter().map(|(file, text)| Source::parse(folder, file, text).unwrap()).collect();
        Findings::of(folder, table::parse(TABLE).unwrap().remove(folder), &sources).unwrap()
    }

    #[test]
    fn layers_finds_upward_imports() {
        let found = findings(
            "src",
            &[
                ("src/error.rs", "use crate::{ffi, header::{Layout, name}}; // crate::ops\n"),
                (
                    "src/header/name.rs",
                    "fn f() { crate::ops::g(\"crate::error\") }\n#[cfg(test)] mod tests { use crate::ops; }",
                ),
                ("src/ops/mod.rs", "use crate::header::Layout; use super::error::Error;"),
                ("src/ffi.rs", ""),
            ],
        );
        let up = |file, module| format!("{file} uses {module}, which is above it (ARCHITECTURE.md)");
        assert_eq!(found.upward, [up("src/error.rs", "header"), up("src/header/name.rs", "ops")]);
        assert_eq!(found.cycles, ["src: these use each other: error, header, ops"]);
    }

    #[test]
    fn layers_knows_the_crates_beside_the_library() {
        let files = ["src/lib.rs", "tool/src/main.rs", "tool/src/a/b.rs", "tool/src/tests/main.rs", "examples/one.rs"];
        let files = files.map(str::to_owned);
        let of_tool = ["tool/src/main.rs", "tool/src/a/b.rs"].map(str::to_owned).to_vec();
        let expected = [("src".to_owned(), vec!["src/lib.rs".to_owned()]), ("tool/src".to_owned(), of_tool)];
        assert_eq!(crates(&files), expected.into());

        let main = ("tool/src/main.rs", "mod low; mod high; mod higher; use other::Name; fn own() {}");
        let found = |low, high| {
            let of_high = ("tool/src/high.rs", high);
            findings("tool/src", &[main, ("tool/src/low.rs", low), of_high, ("tool/src/higher.rs", "")])
        };
        let good = found("use crate::Name; struct A;", "use crate::low; struct B;");
        assert_eq!(good.all(), [""; 0], "the name is another crate's");
        assert_eq!(found("use crate::high::B;", "").upward.len(), 1);
        assert_eq!(found("use crate::own;", "").upward.len(), 1, "the root is above all");
        assert_eq!(found("struct A;", "fn f() { struct A; } mod inner { type A = u8; }").names_twice.len(), 1);
        assert_eq!(found("struct A;", "fn f() { struct A; } #[cfg(test)] mod tests { type A = u8; }").all(), [""; 0]);
        assert_eq!(findings("tool/src", &[main]).broken.len(), 3, "the table names modules that are not there");
        let names = ["lib.rs", "a.rs", "b.rs", "c.rs"].map(|name| format!("new/{name}"));
        let many: Vec<_> = names.iter().map(|name| (&**name, "")).collect();
        assert_eq!(findings("new", &many).broken.len(), 1, "no row");
    }

    #[test]
    fn layers_refuses_modules_without_a_layer() {
        let tables = table::parse(TABLE).unwrap();
        let table = &tables["src"];
        assert!(table.layer("error").unwrap() < table.layer("ops").unwrap());
        assert!(table.layer("sched").unwrap_err().to_string().contains("sched"));
    }

    #[test]
    fn layers_checks_the_rules_of_architecture() {
        let broken = |file: &str, text: &str| findings("src", &[(file, text)]).broken.len();
        let free = "fn f() { unsafe { sys::ggml_free(p) } }";
        assert_eq!([broken("src/ops/raw.rs", free), broken("src/ops/pool.rs", free)], [0, 1]);
        for touch in [
            "fn f(t: &sys::ggml_tensor) {}",
            "fn f(t: *mut sys::ggml_tensor) { unsafe { (*t).ne[0] = 1; } }",
            "fn f(t: Made) { t.raw.src[1] = b; }",
            "fn f() { sys::ggml_tensor { ne, ..t } }",
        ] {
            assert_eq!([broken("src/header/mod.rs", touch), broken("src/ops/view.rs", touch)], [0, 1], "{touch}");
        }
        assert_eq!(broken("src/ops/view.rs", "fn f(t: *mut sys::ggml_tensor) -> i64 { g(t).ne }"), 0);
    }

    /// The same check as in `.ci/run`.
    #[test]
    fn crates_keep_to_their_layers() {
        let found = find(&Workspace::find().unwrap()).unwrap();
        assert!(found.files > 300 && found.crates > 10, "all files are read: {found:?}");
        assert_eq!(found.all(), [""; 0]);
    }
}
