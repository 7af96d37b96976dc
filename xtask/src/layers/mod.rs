//! `cargo xtask layers`: checks the library against ARCHITECTURE.md: its layers and its rules for single files.

mod cycles;
mod sentences;
mod source;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::workspace::Workspace;
use source::Source;
use table::Table;

/// The list of exceptions.
const ALLOWED: &str = "xtask/layers.toml";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print each upward import, including allowed ones
    #[arg(long)]
    all: bool,
}

/// The exceptions. They must be exact, so that they only shrink.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    /// The modules of higher layers that a file imports.
    upward: BTreeMap<String, BTreeSet<String>>,
    /// The modules that form a cycle.
    cycle: BTreeSet<String>,
}

/// The violations.
#[derive(Debug, PartialEq, Eq)]
struct Findings {
    files: usize,
    upward: BTreeMap<String, BTreeSet<String>>,
    cycles: Vec<BTreeSet<String>>,
    broken: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let root = Workspace::find()?.root;
    let found = find(&root)?;
    let imports = || found.upward.iter().flat_map(|(file, modules)| modules.iter().map(move |m| (file, m)));
    if arguments.all {
        imports().for_each(|(file, module)| println!("{file} uses {module}, which is above it"));
    }
    println!("layers: files={} upward={} cycles={}", found.files, imports().count(), found.cycles.len());
    let wrong = found.against(&read_allowed(&root)?);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn find(root: &Path) -> Result<Findings> {
    let table = Table::parse(&read(&root.join("ARCHITECTURE.md"))?)?;
    Findings::of(&table, &source::read_all(&root.join("src"))?)
}

fn read_allowed(root: &Path) -> Result<Allowed> {
    toml::from_str(&read(&root.join(ALLOWED))?).with_context(|| format!("{ALLOWED} is wrong"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

impl Findings {
    fn of(table: &Table, sources: &[Source]) -> Result<Self> {
        let mut upward: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let exports = source::exports(sources);
        for source in sources {
            let own = table.layer(&source.module)?;
            let uses_of = source.uses.iter().map(|name| exports.get(name).unwrap_or(name));
            for used in uses_of.filter(|used| **used != source.module) {
                uses.entry(&source.module).or_default().insert(used);
                if table.layer(used)? > own {
                    upward.entry(source.file.clone()).or_default().insert(used.clone());
                }
            }
        }
        let broken = sources.iter().flat_map(sentences::broken).collect();
        Ok(Self { files: sources.len(), upward, cycles: cycles::find(&uses), broken })
    }

    /// The problems, given the allowed exceptions.
    fn against(&self, allowed: &Allowed) -> Vec<String> {
        let mut wrong = self.broken.clone();
        let none = BTreeSet::new();
        let files: BTreeSet<_> = self.upward.keys().chain(allowed.upward.keys()).collect();
        for file in files {
            let [now, may] = [&self.upward, &allowed.upward].map(|map| map.get(file).unwrap_or(&none));
            wrong.extend(now.difference(may).map(|m| format!("{file} uses {m}, which is above it (ARCHITECTURE.md)")));
            wrong.extend(may.difference(now).map(|m| format!("{file} no longer uses {m}: take that out of {ALLOWED}")));
        }
        let now: BTreeSet<_> = self.cycles.iter().flatten().cloned().collect();
        wrong.extend(now.difference(&allowed.cycle).map(|m| format!("{m} uses itself, by way of others")));
        let left = |m: &String| format!("{m} is in no circle any more: take it out of {ALLOWED}");
        wrong.extend(allowed.cycle.difference(&now).map(left));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "## Layers\n\n| | |\n|---|---|\n| `ggml-sys` | C |\n| `error` `ffi` | low |\n| `header/` | mid |\n| `ops/` | high |\n\n## Next\n";

    fn findings(files: &[(&str, &str)]) -> Findings {
        let sources: Vec<_> = files.iter().map(|(file, text)| Source::parse(file, text).unwrap()).collect();
        Findings::of(&Table::parse(TABLE).unwrap(), &sources).unwrap()
    }

    fn allowed(text: &str) -> Allowed {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn layers_finds_upward_imports() {
        let found = findings(&[
            ("src/error.rs", "use crate::{ffi, header::{Layout, name}}; // crate::ops\n"),
            (
                "src/header/name.rs",
                "fn f() { crate::ops::g(\"crate::error\") }\n#[cfg(test)] mod tests { use crate::ops; }",
            ),
            ("src/ops/mod.rs", "use crate::header::Layout; use super::error::Error;"),
        ]);
        let up: Vec<_> =
            found.upward.iter().map(|(f, m)| (f.as_str(), m.iter().cloned().collect::<Vec<_>>())).collect();
        let expected = [("src/error.rs", vec!["header".to_owned()]), ("src/header/name.rs", vec!["ops".to_owned()])];
        assert_eq!(up, expected);
        let circle = ["error", "header", "ops"].map(str::to_owned).into();
        assert_eq!(found.cycles, [circle], "one circle of three");
        let list = "cycle = ['error', 'header', 'ops']\n[upward]\n'src/error.rs' = ['header']\n";
        let both = allowed(&format!("{list}'src/header/name.rs' = ['ops']\n"));
        assert_eq!(found.against(&both), [""; 0], "as allowed");
        assert_eq!(found.against(&allowed(list)).len(), 1, "one too many");
        let more = allowed(&format!("{list}'src/header/name.rs' = ['ops', 'error']\n"));
        assert_eq!(found.against(&more).len(), 1, "one too few: the list must shrink");
    }

    #[test]
    fn layers_refuses_modules_without_a_layer() {
        let table = Table::parse(TABLE).unwrap();
        assert!(table.layer("error").unwrap() < table.layer("ops").unwrap());
        assert!(table.layer("sched").unwrap_err().to_string().contains("sched"));
    }

    #[test]
    fn layers_checks_the_rules_of_architecture() {
        let broken = |file: &str, text: &str| findings(&[(file, text)]).broken.len();
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
    fn library_keeps_to_its_layers() {
        let root = Workspace::find().unwrap().root;
        let found = find(&root).unwrap();
        assert!(found.files > 100, "all files are read: {}", found.files);
        assert_eq!(found.against(&read_allowed(&root).unwrap()), [""; 0]);
    }
}
