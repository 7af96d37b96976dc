//! A folder of sources and the list of its files' hashes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// The name of the list inside the folder; it does not list itself.
pub const LIST: &str = "SHA256SUMS";

/// Path (with `/`) to SHA-256, sorted by path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<String, String>);

impl Sums {
    /// Hashes every file below `root`.
    ///
    /// # Errors
    ///
    /// Names the file that can't be read.
    pub fn of(root: &Path) -> Result<Self, String> {
        let mut sums = BTreeMap::new();
        for entry in walkdir::WalkDir::new(root) {
            let entry = entry.map_err(|e| format!("cannot read {}: {e}", root.display()))?;
            if entry.file_type().is_dir() {
                continue;
            }
            let relative = entry.path().strip_prefix(root).unwrap_or(entry.path());
            let parts: Vec<_> = relative.iter().map(|p| p.to_string_lossy()).collect();
            let path = parts.join("/");
            if path == LIST {
                continue;
            }
            let bytes = fs::read(entry.path()).map_err(|e| format!("cannot read {}: {e}", entry.path().display()))?;
            sums.insert(path, hex(&Sha256::digest(bytes)));
        }
        Ok(Self(sums))
    }

    /// Parses a list written by [`Sums::to_text`].
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(|l| l.split_once("  ")).map(|(h, p)| (p.to_owned(), h.to_owned())).collect())
    }

    /// The list in the format of `sha256sum`.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (path, hash) in &self.0 {
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "{hash}  {path}");
        }
        text
    }

    /// The hash of the list, the pin's `tree_sha256`.
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(self.to_text()))
    }

    /// The first path at which two lists differ, and how this list differs there.
    pub fn first_difference(&self, right: &Self) -> Option<(String, &'static str)> {
        let paths: std::collections::BTreeSet<_> = self.0.keys().chain(right.0.keys()).collect();
        paths.into_iter().find_map(|path| match (self.0.get(path), right.0.get(path)) {
            (Some(a), Some(b)) if a == b => None,
            (Some(_), Some(_)) => Some((path.clone(), "was changed")),
            (Some(_), None) => Some((path.clone(), "was added")),
            _ => Some((path.clone(), "is missing")),
        })
    }
}

/// Checks the folder against the pinned hash.
///
/// # Errors
///
/// Names the first file that differs, if the folder's own list is still the pinned one.
pub fn verify(root: &Path, pinned: &str) -> Result<(), String> {
    let sums = Sums::of(root)?;
    if sums.sha256() == pinned {
        return Ok(());
    }
    let listed = fs::read_to_string(root.join(LIST)).map(|text| Sums::parse(&text)).unwrap_or_default();
    Err(if listed.sha256() == pinned {
        let (path, how) = sums.first_difference(&listed).unwrap_or_default();
        format!("{path} {how}")
    } else {
        format!("its files have the hash {}, not {pinned}", sums.sha256())
    })
}

/// ggml's version, from its `CMakeLists.txt`.
///
/// # Errors
///
/// Names the file if it contains no version.
pub fn ggml_version(root: &Path) -> Result<String, String> {
    let file = root.join("CMakeLists.txt");
    let text = fs::read_to_string(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let part = |name: &str| {
        let start = format!("set(GGML_VERSION_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&start)?.split(')').next())
    };
    match (part("MAJOR"), part("MINOR"), part("PATCH")) {
        (Some(major), Some(minor), Some(patch)) => Ok(format!("{major}.{minor}.{patch}")),
        _ => Err(format!("{} does not say its GGML_VERSION_MAJOR, _MINOR and _PATCH", file.display())),
    }
}

/// Copies a file, or a folder recursively.
///
/// # Errors
///
/// Names the path that can't be read or written.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.map_err(|e| format!("cannot read {}: {e}", from.display()))?;
        let relative = entry.path().strip_prefix(from).unwrap_or(entry.path());
        let target = if relative.as_os_str().is_empty() { to.to_owned() } else { to.join(relative) };
        let done =
            if entry.file_type().is_dir() { fs::create_dir_all(&target) } else { copy_file(entry.path(), &target) };
        done.map_err(|e| format!("cannot copy {} to {}: {e}", entry.path().display(), target.display()))?;
    }
    age(to);
    Ok(())
}

/// Copies the contents only: files of packages may be read-only, and the copy must be deletable.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let bytes = fs::read(from)?;
    fs::write(to, bytes)
}

/// Sets an old modification time on everything below `root`. Otherwise cargo would take sources fetched by the build
/// script for a later change. Where that fails, as for folders on Windows, the script runs once more.
fn age(root: &Path) {
    for entry in walkdir::WalkDir::new(root).into_iter().flatten() {
        let folder = entry.file_type().is_dir();
        if let Ok(file) = fs::File::options().read(true).write(!folder).open(entry.path()) {
            let _runs_once_more = file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        }
    }
}

/// Digest bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, b| {
        let _infallible = write!(text, "{b:02x}");
        text
    })
}
