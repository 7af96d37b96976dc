//! Fills `vendor/ggml/` with the pinned sources. Shared by the build script and by `cargo xtask vendor`.

pub(crate) mod cargo;
pub(crate) mod pin;
pub(crate) mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cargo::Cargo;
use pin::Pin;

/// The sources, verified: those in `vendor/ggml/`, fetched if they are not there. Where `vendor` cannot be written they
/// go to `elsewhere`.
///
/// # Errors
///
/// What is wrong and what to run.
pub(crate) fn ensure(vendor: &Path, elsewhere: &Path, pin: &Pin, cargo: &Cargo) -> Result<PathBuf, String> {
    for place in [vendor, elsewhere] {
        let tree = place.join("ggml");
        if tree.exists() {
            return verified(tree, pin);
        }
    }
    let place = if writable(vendor) { vendor } else { elsewhere };
    fill(place, pin, cargo)
}

fn verified(tree: PathBuf, pin: &Pin) -> Result<PathBuf, String> {
    tree::verify(&tree, &pin.tree_sha256).map_err(|e| {
        format!(
            "{} is not the pinned ggml {}: {e}\n\
             Delete that folder and build again to have it as pinned; to build a changed ggml, set GGML_SYS_SOURCE_DIR to it.",
            tree.display(),
            pin.ggml
        )
    })?;
    Ok(tree)
}

/// Fetches into a folder of its own and renames it into place, so that another build sees all of it or nothing.
fn fill(place: &Path, pin: &Pin, cargo: &Cargo) -> Result<PathBuf, String> {
    let temporary = Temporary::new(place)?;
    let package = cargo.unpack(pin, &temporary.0.join("project")).map_err(|e| {
        let todo = format!(
            "the sources of ggml {} are not there and cargo has no {} {}: with network access, run `cargo xtask vendor` \
             in the repository, or build once",
            pin.ggml, pin.package, pin.version
        );
        if cargo.offline { todo } else { format!("{todo}\n{e}") }
    })?;
    let filled = temporary.0.join("ggml");
    fs::create_dir_all(&filled).map_err(|e| format!("cannot create {}: {e}", filled.display()))?;
    for (from, to) in &pin.keep {
        let to = if to == "." { filled.clone() } else { filled.join(to) };
        tree::copy(&package.join(from), &to)?;
    }
    let sums = tree::Sums::of(&filled)?;
    if sums.sha256() != pin.tree_sha256 {
        return Err(format!(
            "{} is not what the pin says: its kept files have the hash {}, not {}",
            package.display(),
            sums.sha256(),
            pin.tree_sha256
        ));
    }
    let list = filled.join(tree::LIST);
    fs::write(&list, sums.to_text()).map_err(|e| format!("cannot write {}: {e}", list.display()))?;
    let tree = place.join("ggml");
    match fs::rename(&filled, &tree) {
        Ok(()) => Ok(tree),
        // Another build was first.
        Err(_) if tree.exists() => verified(tree, pin),
        Err(e) => Err(format!("cannot rename {} to {}: {e}", filled.display(), tree.display())),
    }
}

/// A folder that goes when it is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(place: &Path) -> Result<Self, String> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
        let path = place.join(format!(".ggml-{}-{nanos}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("cannot create {}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What stays behind is ignored by git and harmless.
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}

fn writable(folder: &Path) -> bool {
    Temporary::new(folder).is_ok()
}
