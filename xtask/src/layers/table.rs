//! The table of layers in ARCHITECTURE.md.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

/// The layer of each of the library's modules, counted from the bottom.
pub(super) struct Table(BTreeMap<String, usize>);

impl Table {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (_, after) = text.split_once("## Layers\n").context("ARCHITECTURE.md has no heading `Layers`")?;
        let rows = after.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|'));
        let mut layers = BTreeMap::new();
        for (layer, row) in rows.enumerate() {
            let names = row.split('|').nth(1).unwrap_or_default();
            for name in names.split('`').skip(1).step_by(2) {
                let twice = layers.insert(name.trim_end_matches('/').to_owned(), layer);
                ensure!(twice.is_none(), "ARCHITECTURE.md gives {name} two layers");
            }
        }
        ensure!(layers.len() > 1, "ARCHITECTURE.md has no table of layers");
        Ok(Self(layers))
    }

    pub(super) fn layer(&self, module: &str) -> Result<usize> {
        self.0.get(module).copied().with_context(|| format!("ARCHITECTURE.md does not say which layer {module} is in"))
    }
}
