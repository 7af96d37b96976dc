//! `cargo xtask vendor --update VERSION`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::fetch::cargo::Package;
use crate::fetch::pin::{Pin, Pins};
use crate::fetch::{Fetched, tree};
use crate::headers::{Api, Difference};
use crate::report;
use crate::workspace::Workspace;

/// Fetches the version and prints what changed since the default one; then, unless this is a `dry_run`, pins it and makes
/// it the default. Versions that were pinned before stay.
#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(workspace: &Workspace, package: Option<&str>, version: &str, dry_run: bool) -> Result<()> {
    let pins = workspace.pins()?;
    let old = pins.choose(None).map_err(anyhow::Error::msg)?;
    let package = package.unwrap_or(&old.package);
    let known = pins.all.iter().find(|pin| pin.package == package && pin.version == version);
    ensure!(known != Some(old), "{} is the default already", old.origin());
    let fetched = known.is_none().then(|| fetch(workspace, old, package, version)).transpose()?;
    let new = known.or(fetched.as_ref().map(|(pin, _)| pin)).context("what is not pinned is fetched")?;
    let after = match &fetched {
        Some((_, fetched)) => fetched.tree.clone(),
        None => workspace.sources(new)?,
    };
    println!("{} (ggml {}) -> {} (ggml {})\n", old.origin(), old.ggml, new.origin(), new.ggml);
    let before = workspace.sources(old)?;
    let (declared, declares) = (api(workspace, &before)?, api(workspace, &after)?);
    print!("{}", Difference::between(&declared, &declares));
    println!("{}", report::write(&workspace.root, &before, &after)?);

    let file = workspace.root.join("vendor/ggml.toml");
    let text = moved(&fs::read_to_string(&file)?, &pins, new)?;
    let manifest = workspace.root.join(MANIFEST);
    let licensed = replaced(&fs::read_to_string(&manifest)?, &licence(&old.ggml), &licence(&new.ggml))?;
    if dry_run {
        println!("a dry run: nothing was moved");
        return Ok(());
    }
    if let Some((pin, fetched)) = fetched {
        fetched.install(&workspace.vendor(), &pin).map_err(anyhow::Error::msg)?;
    }
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    fs::write(&manifest, licensed).with_context(|| format!("cannot write {}", manifest.display()))
}

/// ggml-sys's manifest, which names the licence among the default version's sources: cargo makes no package without it.
const MANIFEST: &str = "ggml-sys/Cargo.toml";

fn licence(ggml: &str) -> String {
    format!("\nlicense-file = \"vendor/ggml-{ggml}/LICENSE\"\n")
}

/// Fetches a version that is not pinned.
fn fetch(workspace: &Workspace, like: &Pin, package: &str, version: &str) -> Result<(Pin, Fetched)> {
    let wanted = Package { name: package, version, sha256: None };
    let fetched = Fetched::new(&workspace.vendor(), wanted, &like.keep, &workspace.fetcher());
    let fetched = fetched.map_err(anyhow::Error::msg)?;
    let pin = Pin {
        ggml: tree::ggml_version(&fetched.tree).map_err(anyhow::Error::msg)?,
        package: package.to_owned(),
        version: version.to_owned(),
        sha256: fetched.sha256.clone(),
        tree_sha256: fetched.sums.sha256(),
        keep: like.keep.clone(),
    };
    Ok((pin, fetched))
}

/// The text of the pins with another default, which is added if it is new.
fn moved(text: &str, pins: &Pins, new: &Pin) -> Result<String> {
    let mut text = replaced(text, &default(&pins.default), &default(&new.ggml))?;
    let there = pins.all.iter().find(|pin| pin.ggml == new.ggml);
    if let Some(pin) = there {
        ensure!(pin == new, "ggml {} is pinned already, from {}: remove that pin first", pin.ggml, pin.origin());
    } else {
        let Pin { ggml, package, version, sha256, tree_sha256, .. } = new;
        // Writing to a String cannot fail.
        let _infallible = write!(
            text,
            "\n[[pin]]\nggml = {ggml:?}\npackage = {package:?}\nversion = {version:?}\nsha256 = {sha256:?}\n\
             tree_sha256 = {tree_sha256:?}\n"
        );
    }
    Ok(text)
}

fn default(ggml: &str) -> String {
    format!("\ndefault = \"{ggml}\"\n")
}

/// The text with `old`, which must be there once, replaced.
fn replaced(text: &str, old: &str, new: &str) -> Result<String> {
    ensure!(text.matches(old).count() == 1, "{:?} must be there once", old.trim());
    Ok(text.replace(old, new))
}

/// The declarations that ggml-sys's build script generates from a tree. In docs.rs mode it compiles no C.
fn api(workspace: &Workspace, tree: &Path) -> Result<Api> {
    let mut command = workspace.cargo(&workspace.root);
    command.args(["check", "--quiet", "--package", "libggml-sys", "--message-format", "json", "--features"]);
    command.arg(features(&fs::read_to_string(workspace.root.join(MANIFEST))?)?);
    let output = command.env("DOCS_RS", "1").env("GGML_SYS_SOURCE_DIR", tree).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("cannot make bindings of {}:\n{}", tree.display(), String::from_utf8_lossy(&output.stderr));
    }
    let folder = said.lines().find_map(out_dir).context("cargo does not say where ggml-sys's build script wrote")?;
    let file = folder.join("bindings.rs");
    Api::parse(&fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?)
}

/// Features that select how ggml is compiled and linked. The rest are backends, each with a header.
const HOW: &[&str] = &["dynamic-backends", "dynamic-link", "native", "openmp", "system"];

/// The features of ggml-sys that enable backends.
fn features(manifest: &str) -> Result<String> {
    let manifest: toml::Table = manifest.parse()?;
    let features = manifest.get("features").and_then(toml::Value::as_table).context("ggml-sys has no features")?;
    let features: Vec<_> = features.keys().map(String::as_str).filter(|name| !HOW.contains(name)).collect();
    Ok(features.join(","))
}

fn out_dir(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let text = |key: &str| message.get(key).and_then(serde_json::Value::as_str);
    let ours = text("reason") == Some("build-script-executed") && text("package_id")?.contains("#libggml-sys@");
    if ours { text("out_dir").map(PathBuf::from) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_needs_sources_of_the_default_version() {
        let pins = Pins::parse(include_str!("../../vendor/ggml.toml")).unwrap();
        assert!(include_str!("../../ggml-sys/Cargo.toml").contains(&licence(&pins.default)));
    }

    #[test]
    fn moving_there_and_back_leaves_the_text_as_it_is() {
        let text = include_str!("../../vendor/ggml.toml");
        let pins = Pins::parse(text).unwrap();
        let new = Pin { ggml: "9.9.9".into(), version: "8.8.8".into(), ..pins.choose(None).unwrap().clone() };
        let there = moved(text, &pins, &new).unwrap();
        let moved_pins = Pins::parse(&there).unwrap();
        assert_eq!(moved_pins.choose(None), Ok(&new));
        assert_eq!(moved_pins.all.len(), pins.all.len() + 1, "the others stay");
        let back = moved(&there, &moved_pins, pins.choose(None).unwrap()).unwrap();
        assert!(back.starts_with(text), "only the new pin is left");
    }

    #[test]
    fn another_package_of_a_pinned_version_is_refused() {
        let text = include_str!("../../vendor/ggml.toml");
        let pins = Pins::parse(text).unwrap();
        let new = Pin { package: "other".into(), ..pins.choose(None).unwrap().clone() };
        assert!(moved(text, &pins, &new).unwrap_err().to_string().contains("pinned already"));
    }

    #[test]
    fn update_compares_the_headers_of_all_backends() {
        let features = features(include_str!("../../ggml-sys/Cargo.toml")).unwrap();
        let features: Vec<_> = features.split(',').collect();
        assert!(["rpc", "vulkan", "metal"].iter().all(|name| features.contains(name)), "{features:?}");
        assert!(HOW.iter().all(|name| !features.contains(name)), "{features:?}");
    }

    #[test]
    fn out_dir_is_read_from_cargo_messages() {
        let ours = r#"{"reason":"build-script-executed","package_id":"path+file:///r/ggml-sys#libggml-sys@0.1.0","out_dir":"/o"}"#;
        let other = r#"{"reason":"build-script-executed","package_id":"registry+x#libc@0.2","out_dir":"/l"}"#;
        assert_eq!(out_dir(ours), Some(PathBuf::from("/o")));
        assert_eq!(out_dir(other), None);
    }
}
