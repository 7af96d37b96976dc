//! Output files, checked before the work begins.
//!
//! All examples follow one rule. The folder exists and is writable. The file does not exist, or `--force` is given and it is
//! a regular file that is not read-only. A symbolic link stays, and its target is replaced; a dangling link is refused,
//! because it may be a mistake or an unmounted disk. The file is replaced atomically: it is the old one or the new one.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, bail, ensure};

use crate::Shown;

/// A path that can be written to.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// The path with links resolved.
    target: PathBuf,
    /// The command line option that names it.
    option: &'static str,
}

impl Output {
    /// Checks the path that an option names.
    ///
    /// # Errors
    /// The path can't be written to.
    pub fn new(path: &Path, force: bool, option: &'static str) -> Result<Self> {
        let target = target(path).with_context(|| fault(path, option))?;
        let shown = path.display().to_string();
        ensure!(
            force || !target.exists(),
            "{} is there already: --force replaces it, {option} names another place",
            Shown::text(&shown)
        );
        Ok(Self { path: path.to_owned(), target, option })
    }

    /// [`Output::new`] for an optional option.
    pub fn of(path: Option<&PathBuf>, force: bool, option: &'static str) -> Result<Option<Self>> {
        path.map(|path| Self::new(path, force, option)).transpose()
    }

    /// The path, for code that follows the rule itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        self.replace(bytes).with_context(|| fault(&self.path, self.option))
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)); // except what the umask takes away
        let mut file = builder.tempfile_in(folder(&self.target))?;
        if let Ok(old) = fs::metadata(&self.target) {
            file.as_file().set_permissions(old.permissions())?;
        }
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&self.target)?;
        Ok(())
    }

    /// Fails if another option names the same file.
    pub fn differs(&self, other: &Self) -> Result<()> {
        let same = self.target.file_name() == other.target.file_name()
            && fs::canonicalize(folder(&self.target))? == fs::canonicalize(folder(&other.target))?;
        ensure!(!same, "{} and {} name the same file", self.option, other.option);
        Ok(())
    }
}

fn fault(path: &Path, option: &str) -> String {
    format!("can't write {} ({option})", Shown::text(&path.display().to_string()))
}

/// The file to write, with links resolved.
fn target(path: &Path) -> Result<PathBuf> {
    let target = match fs::symlink_metadata(path) {
        Ok(found) => {
            if found.is_symlink() && !fs::exists(path)? {
                bail!("it is a link to a file that is not there");
            }
            let target = fs::canonicalize(path)?;
            let old = fs::metadata(&target)?;
            ensure!(!old.is_dir(), "it is a folder");
            ensure!(old.is_file(), "it is no regular file");
            // Root may open read-only files, so opening is no test.
            ensure!(!old.permissions().readonly(), "it is read-only");
            drop(OpenOptions::new().write(true).open(&target)?);
            target
        }
        Err(e) if e.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(e) => return Err(e.into()),
    };
    let name = target.file_name().map(OsStr::as_encoded_bytes);
    // `new/` has a file name, but names a folder.
    ensure!(name.is_some_and(|name| target.as_os_str().as_encoded_bytes().ends_with(name)), "it is no name of a file");
    let folder = folder(&target);
    let shown = folder.display().to_string();
    let about = |e: Error, what: &str| e.context(format!("the folder {} {what}", Shown::text(&shown)));
    let found = fs::metadata(folder).map_err(|e| about(e.into(), "is not there"))?;
    ensure!(found.is_dir(), "{} is no folder", Shown::text(&shown));
    // An unnamed temporary file tests whether the folder is writable.
    tempfile::tempfile_in(folder).map_err(|e| about(e.into(), "can't be written to"))?;
    Ok(target)
}

fn folder(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
