//! Where a program writes, which is looked at before its work begins.
//!
//! All examples have one rule. The folder is there, and can be written to. What is in the place is nothing, or, with
//! `--force`, a regular file that is not read-only. A link leads to such a file, which is replaced while the link stays; a
//! link to nothing is refused, for it may be a mistake, or a disk that is not there. Whatever happens then, there is the old
//! file or the new one, as a whole.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, bail, ensure};

use crate::Shown;

/// A place where a file can be written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// What links lead to.
    target: PathBuf,
    /// What names it on the command line.
    option: &'static str,
}

impl Output {
    /// The place that an option names.
    ///
    /// # Errors
    /// Says why nothing can be written there.
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

    /// [`Output::new`], of an option that may be left out.
    pub fn of(path: Option<&PathBuf>, force: bool, option: &'static str) -> Result<Option<Self>> {
        path.map(|path| Self::new(path, force, option)).transpose()
    }

    /// The path, for what writes by itself and keeps the rule.
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

    /// Fails where this is the file that another option names as well.
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

/// Where a file would lie: what a link points to.
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
            // The system tells no root so.
            ensure!(!old.permissions().readonly(), "it is read-only");
            drop(OpenOptions::new().write(true).open(&target)?);
            target
        }
        Err(e) if e.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(e) => return Err(e.into()),
    };
    let name = target.file_name().map(OsStr::as_encoded_bytes);
    // `new/` has a name, but is one of a folder.
    ensure!(name.is_some_and(|name| target.as_os_str().as_encoded_bytes().ends_with(name)), "it is no name of a file");
    let folder = folder(&target);
    let shown = folder.display().to_string();
    let about = |e: Error, what: &str| e.context(format!("the folder {} {what}", Shown::text(&shown)));
    let found = fs::metadata(folder).map_err(|e| about(e.into(), "is not there"))?;
    ensure!(found.is_dir(), "{} is no folder", Shown::text(&shown));
    // Nobody sees it, and it is gone at once.
    tempfile::tempfile_in(folder).map_err(|e| about(e.into(), "can't be written to"))?;
    Ok(target)
}

fn folder(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
