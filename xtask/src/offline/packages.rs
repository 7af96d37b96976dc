//! Packages the published crates as a user gets them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::Place;
use crate::fetch;
use crate::workspace::check;

/// The published crates, dependencies first.
pub(crate) const CRATES: &[&str] = &["libggml-sys", "ggml-gguf", "libggml", "ggml-draw"];

/// crates.io's size limit for packages.
const LIMIT: u64 = 10 << 20;

/// Packages the crates, and unpacks them into folders.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(super) fn make(place: &Place) -> Result<Vec<PathBuf>> {
    let target = place.folder.join("packages");
    let mut command = place.cargo(&place.workspace.root, &target);
    // The fetched sources are not committed, so the tree is dirty; they were verified. Lock files would name whatever
    // crates.io has under the names of these crates.
    command.args(["package", "--no-verify", "--allow-dirty", "--exclude-lockfile", "--quiet"]);
    for name in CRATES {
        command.args(["--package", name]);
    }
    check(&mut command)?;
    let mut folders = Vec::new();
    for name in CRATES {
        let package = find(&target.join("package"), name)?;
        println!("{}: {} bytes", package.display(), size(&package)?);
        folders.push(unpack(&package, &target)?);
    }
    let tree = folders.first().context("ggml-sys comes first")?.join("vendor").join(place.tree_name());
    fetch::tree::verify(&tree, &place.pin.tree_sha256).map_err(anyhow::Error::msg)?;
    Ok(folders)
}

/// The size of a package, which crates.io takes.
pub(crate) fn size(package: &Path) -> Result<u64> {
    let size = fs::metadata(package)?.len();
    ensure!(size <= LIMIT, "{} has {size} bytes; crates.io takes packages of at most {LIMIT}", package.display());
    Ok(size)
}

/// The `.crate` file of `name`, of any version.
pub(crate) fn find(folder: &Path, name: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let version = stem.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        let is = version.is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()));
        if is && path.extension().is_some_and(|e| e == "crate") {
            return Ok(path);
        }
    }
    anyhow::bail!("cargo left no package of {name} in {}", folder.display())
}

/// Unpacks a package, and returns its folder.
pub(crate) fn unpack(package: &Path, into: &Path) -> Result<PathBuf> {
    let file = fs::File::open(package)?;
    tar::Archive::new(flate2::read::GzDecoder::new(file)).unpack(into)?;
    Ok(into.join(package.file_stem().context("a package has a name")?))
}
