//! Fills `vendor/ggml-VERSION/` with the pinned sources. Shared by the build script and by `cargo xtask vendor`.

pub mod cargo;
pub mod pin;
pub mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use cargo::{Cargo, Package};
use pin::Pin;
use tree::Sums;

/// Returns the folder of the verified sources, below `vendor`, fetched if missing. If `vendor` can't be written, they go
/// to `elsewhere`.
///
/// # Errors
///
/// Says what is wrong and what to run.
pub fn ensure(vendor: &Path, elsewhere: &Path, pin: &Pin, cargo: &Cargo) -> Result<PathBuf, String> {
    for place in [vendor, elsewhere] {
        let tree = place.join(pin.folder());
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

fn fill(place: &Path, pin: &Pin, cargo: &Cargo) -> Result<PathBuf, String> {
    let package = Package { name: &pin.package, version: &pin.version, sha256: Some(&pin.sha256) };
    let fetched = Fetched::new(place, package, &pin.keep, cargo).map_err(|e| {
        let folder = pin.keep.iter().find(|(_, to)| to == ".").map_or("", |(from, _)| from);
        let Pin { package, version, ggml, .. } = pin;
        let todo = format!(
            "the sources of ggml {ggml} are not in {}, and cargo has no {package} {version}, the package that carries them\n\
             With a network: build once. A later `cargo vendor` takes the sources along.\n\
             Without: unpack https://static.crates.io/crates/{package}/{package}-{version}.crate \
             and set GGML_SYS_SOURCE_DIR to its folder {folder}",
            place.join(pin.folder()).display()
        );
        if cargo.offline { todo } else { format!("{todo}\n{e}") }
    })?;
    for (what, is, pinned) in
        [("checksum", &fetched.sha256, &pin.sha256), ("tree", &fetched.sums.sha256(), &pin.tree_sha256)]
    {
        if is != pinned {
            return Err(format!("{} is not as pinned: the SHA-256 of its {what} is {is}, not {pinned}", pin.origin()));
        }
    }
    fetched.install(place, pin).or_else(|error| {
        let tree = place.join(pin.folder());
        // Another build may have installed them first.
        if tree.exists() { verified(tree, pin) } else { Err(error) }
    })
}

/// The files kept from a package, in a temporary folder. They are renamed into place, so that other builds see either
/// all or none of them.
#[derive(Debug)]
pub struct Fetched {
    pub tree: PathBuf,
    pub sums: Sums,
    pub sha256: String,
    temporary: Temporary,
}

impl Fetched {
    /// Fetches into a new folder below `place`.
    ///
    /// # Errors
    ///
    /// cargo's output, or the file that can't be copied.
    pub fn new(place: &Path, package: Package<'_>, keep: &[(String, String)], cargo: &Cargo) -> Result<Self, String> {
        let temporary = Temporary::new(place)?;
        let unpacked = cargo.unpack(package, &temporary.0.join("project"))?;
        let tree = temporary.0.join("ggml");
        fs::create_dir_all(&tree).map_err(|e| format!("cannot create {}: {e}", tree.display()))?;
        for (from, to) in keep {
            let to = if to == "." { tree.clone() } else { tree.join(to) };
            tree::copy(&unpacked.folder.join(from), &to)?;
        }
        let sums = Sums::of(&tree)?;
        let list = tree.join(tree::LIST);
        fs::write(&list, sums.to_text()).map_err(|e| format!("cannot write {}: {e}", list.display()))?;
        Ok(Self { tree, sums, sha256: unpacked.sha256, temporary })
    }

    /// Renames the folder to its name below `place`, where it must not exist.
    ///
    /// # Errors
    ///
    /// Names both paths.
    pub fn install(self, place: &Path, pin: &Pin) -> Result<PathBuf, String> {
        let tree = place.join(pin.folder());
        let renamed = fs::rename(&self.tree, &tree);
        drop(self.temporary);
        match renamed {
            Ok(()) => Ok(tree),
            Err(e) => Err(format!("cannot rename {} to {}: {e}", self.tree.display(), tree.display())),
        }
    }
}

/// A folder that is removed on drop.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn new(place: &Path) -> Result<Self, String> {
        // Two threads of a process may ask within the same clock tick.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!(".ggml-{}-{nanos}-{count}", std::process::id()));
        fs::create_dir_all(place)
            .and_then(|()| fs::create_dir(&path))
            .map_err(|e| format!("cannot create {}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A leftover folder is ignored by git and harmless.
        let _left_behind = fs::remove_dir_all(&self.0);
    }
}

fn writable(folder: &Path) -> bool {
    Temporary::new(folder).is_ok()
}
