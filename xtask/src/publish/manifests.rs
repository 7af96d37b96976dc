//! What the manifests of published crates must have, and the names that they may not.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The names that belong to others on crates.io.
const TAKEN: &str = include_str!("../../publish/names-taken.txt");

/// What `cargo metadata` says.
#[derive(Debug, Deserialize)]
struct Listing {
    packages: Vec<Manifest>,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    name: String,
    /// None: to be published.
    publish: Option<Vec<String>>,
    description: Option<String>,
    license: Option<String>,
    readme: Option<String>,
    rust_version: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
    metadata: Option<serde_json::Value>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// None for normal ones.
    kind: Option<String>,
}

/// Checks the workspace's manifests, as `cargo metadata` prints them: exactly `names` are to be published.
pub(super) fn check(metadata: &[u8], names: &[&str]) -> Result<()> {
    let Listing { packages } = serde_json::from_slice(metadata).context("cannot read what `cargo metadata` printed")?;
    let mut found: Vec<_> =
        packages.iter().filter(|manifest| manifest.publish.is_none()).map(|manifest| manifest.name.as_str()).collect();
    let mut wanted = names.to_vec();
    found.sort_unstable();
    wanted.sort_unstable();
    ensure!(found == wanted, "the manifests publish {found:?}; this chore packages {wanted:?}");
    for manifest in packages.iter().filter(|manifest| manifest.publish.is_none()) {
        manifest.check()?;
    }
    Ok(())
}

impl Manifest {
    fn check(&self) -> Result<()> {
        let name = &self.name;
        not_taken(name)?;
        for dependency in self.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev")) {
            not_taken(&dependency.name).with_context(|| format!("a dependency of {name}"))?;
        }
        let docs = self.metadata.as_ref().and_then(|metadata| metadata.pointer("/docs/rs"));
        for (what, there) in [
            ("description", self.description.is_some()),
            ("license", self.license.is_some()),
            ("readme", self.readme.is_some()),
            ("rust-version", self.rust_version.is_some()),
            ("keywords", !self.keywords.is_empty()),
            ("categories", !self.categories.is_empty()),
            ("package.metadata.docs.rs", docs.is_some()),
        ] {
            ensure!(there, "the manifest of {name} has no `{what}`");
        }
        Ok(())
    }
}

/// Refuses a package name that belongs to others.
fn not_taken(name: &str) -> Result<()> {
    for line in TAKEN.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        if words.next() == Some(name) {
            let (date, owner) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            anyhow::bail!("the name `{name}` on crates.io belongs to {owner} (looked up on {date}): take another");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let mut package = serde_json::json!({
            "name": "a", "publish": null, "description": "A", "license": "MIT", "readme": "README.md",
            "rust_version": "1.88", "keywords": ["k"], "categories": ["c"], "metadata": { "docs": { "rs": {} } },
            "dependencies": [{ "name": "ggml", "kind": "dev" }],
        });
        change(&mut package);
        serde_json::json!({ "packages": [package] }).to_string().into_bytes()
    }

    fn refused(change: impl FnOnce(&mut serde_json::Value)) -> String {
        format!("{:#}", check(&listing(change), &["a"]).unwrap_err())
    }

    #[test]
    fn a_whole_manifest_passes_and_others_are_named() {
        check(&listing(|_| ()), &["a"]).unwrap();
        for (key, empty) in
            [("description", "null"), ("keywords", "[]"), ("rust_version", "null"), ("metadata", "null")]
        {
            let said = refused(|package| package[key] = serde_json::from_str(empty).unwrap());
            assert!(said.contains("the manifest of a has no"), "{said}");
        }
        assert!(refused(|package| package["publish"] = serde_json::json!([])).contains("this chore packages"));
    }

    #[test]
    fn names_of_others_are_refused() {
        let metadata = listing(|package| package["name"] = "ggml".into());
        let said = check(&metadata, &["ggml"]).unwrap_err().to_string();
        assert!(said.contains("belongs to another project"), "{said}");
        let said = refused(|package| package["dependencies"][0]["kind"] = serde_json::Value::Null);
        assert!(said.contains("a dependency of a") && said.contains("`ggml`"), "{said}");
    }
}
