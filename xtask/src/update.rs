//! `cargo xtask vendor --update VERSION`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::fetch::cargo::Package;
use crate::fetch::pin::Pin;
use crate::fetch::{Fetched, tree};
use crate::headers::{Api, Difference};
use crate::workspace::Workspace;

/// Fetches the version and prints the changes of the headers; then, unless this is a `dry_run`, moves the pin and the
/// sources.
#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(workspace: &Workspace, pin: &Pin, version: &str, dry_run: bool) -> Result<()> {
    if version == pin.version {
        bail!("the pin is at {} already", pin.origin());
    }
    let vendor = workspace.vendor();
    let old = workspace.sources(pin)?;
    let package = Package { name: &pin.package, version, sha256: None };
    let fetched = Fetched::new(&vendor, package, &pin.keep, &workspace.fetcher()).map_err(anyhow::Error::msg)?;
    let new = Pin {
        version: version.to_owned(),
        sha256: fetched.sha256.clone(),
        ggml: tree::ggml_version(&fetched.tree).map_err(anyhow::Error::msg)?,
        tree_sha256: fetched.sums.sha256(),
        ..pin.clone()
    };
    let (before, after) = (api(workspace, &old)?, api(workspace, &fetched.tree)?);
    let difference = Difference::between(&before, &after);
    println!("{} (ggml {}) -> {} (ggml {})\n\n{difference}", pin.origin(), pin.ggml, new.origin(), new.ggml);

    let file = vendor.join("ggml.toml");
    let text = moved(&fs::read_to_string(&file)?, pin, &new)?;
    if dry_run {
        println!("{} stays as it is", file.display());
        return Ok(());
    }
    fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    fetched.install(&vendor).map_err(anyhow::Error::msg)?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("moved {}", file.display());
    Ok(())
}

/// The pin's text with new values; comments are kept.
fn moved(text: &str, old: &Pin, new: &Pin) -> Result<String> {
    let mut text = text.to_owned();
    for (key, old, new) in [
        ("version", &old.version, &new.version),
        ("sha256", &old.sha256, &new.sha256),
        ("ggml", &old.ggml, &new.ggml),
        ("tree_sha256", &old.tree_sha256, &new.tree_sha256),
    ] {
        text = text.replace(&format!("\n{key} = \"{old}\""), &format!("\n{key} = \"{new}\""));
    }
    if Pin::parse(&text).map_err(anyhow::Error::msg)? != *new {
        bail!("the pin's text is not `key = \"value\"` in lines of their own, as this chore expects");
    }
    Ok(text)
}

/// The declarations that ggml-sys's build script generates from a tree. In docs.rs mode it compiles no C.
fn api(workspace: &Workspace, tree: &Path) -> Result<Api> {
    let mut command = workspace.cargo(&workspace.root);
    command.args(["check", "--quiet", "--package", "ggml-sys", "--message-format", "json", "--features"]);
    command.arg(features(&fs::read_to_string(workspace.root.join("ggml-sys/Cargo.toml"))?)?);
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
    let ours = text("reason") == Some("build-script-executed") && text("package_id")?.contains("ggml-sys");
    if ours { text("out_dir").map(PathBuf::from) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_moves_the_pin_and_keeps_comments() {
        let text = include_str!("../../vendor/ggml.toml");
        let old = Pin::parse(text).unwrap();
        let new = Pin {
            version: "9.9.9".into(),
            sha256: "a".into(),
            ggml: "8.8.8".into(),
            tree_sha256: "b".into(),
            ..old.clone()
        };
        let text = moved(text, &old, &new).unwrap();
        assert_eq!(Pin::parse(&text).unwrap(), new);
        assert!(text.starts_with("# Where ggml comes from."));
        assert!(moved("version=\"1\"", &old, &new).is_err());
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
        let ours = r#"{"reason":"build-script-executed","package_id":"path+file:///r/ggml-sys#0.1.0","out_dir":"/o"}"#;
        let other = r#"{"reason":"build-script-executed","package_id":"registry+x#libc@0.2","out_dir":"/l"}"#;
        assert_eq!(out_dir(ours), Some(PathBuf::from("/o")));
        assert_eq!(out_dir(other), None);
    }
}
