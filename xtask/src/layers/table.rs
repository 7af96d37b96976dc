//! The tables of layers in ARCHITECTURE.md.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

/// The layer of each module of a crate, counted from the bottom.
#[derive(Debug, Default)]
pub(super) struct Table(BTreeMap<String, usize>);

/// The table of the library, and those of other crates by folder.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Table>> {
    let mut library = Table::default();
    for (layer, row) in rows(text, "## Layers\n")?.enumerate() {
        library.add(layer, cell(row, 1))?;
    }
    let mut tables = BTreeMap::new();
    for row in rows(text, "### Layers of the other crates\n")? {
        let mut table = Table::default();
        for (layer, names) in cell(row, 2).split('<').enumerate() {
            table.add(layer, names)?;
        }
        let folder = names(cell(row, 1)).next().context("a row of ARCHITECTURE.md names no folder")?;
        ensure!(tables.insert(folder.to_owned(), table).is_none(), "ARCHITECTURE.md has two rows for {folder}");
    }
    tables.insert("src".to_owned(), library);
    Ok(tables)
}

/// The rows of the table after a heading.
fn rows<'a>(text: &'a str, heading: &str) -> Result<impl Iterator<Item = &'a str> + use<'a>> {
    let (_, after) =
        text.split_once(heading).with_context(|| format!("ARCHITECTURE.md has no `{}`", heading.trim()))?;
    Ok(after.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|')))
}

fn cell(row: &str, i: usize) -> &str {
    row.split('|').nth(i).unwrap_or_default()
}

/// What stands between backticks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).map(|name| name.trim_end_matches('/'))
}

impl Table {
    fn add(&mut self, layer: usize, text: &str) -> Result<()> {
        for name in names(text) {
            let twice = self.0.insert(name.to_owned(), layer);
            ensure!(twice.is_none(), "ARCHITECTURE.md gives {name} two layers");
        }
        Ok(())
    }

    /// The layer of a module. A crate's root stands above all that is not in the table.
    pub(super) fn layer(&self, module: &str) -> Result<usize> {
        let layer = self.0.get(module).copied().or_else(|| super::source::is_root(module).then_some(usize::MAX));
        layer.with_context(|| format!("ARCHITECTURE.md does not say which layer {module} is in"))
    }

    /// The modules that are not there.
    pub(super) fn missing<'a>(
        &'a self,
        modules: &'a std::collections::BTreeSet<&str>,
    ) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str).filter(|name| !modules.contains(name))
    }
}
